"""How clients of an experiment rank, by name or by a file; and data that are hard to learn from."""

from pathlib import Path

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image
from flwr.app import Context, RecordDict

from experiments.tool.config import PolicyChoice
from experiments.tool.data import AlteredPartition, FederatedData, Partition
from experiments.tool.ranking import rank

LIKELY = np.array([[0.5, 0.4, 0.1], [0.9, 0.05, 0.05], [0.34, 0.33, 0.33]])
LABELS = np.array([2, 0, 1])


def context() -> Context:
    return Context(0, 7, {}, RecordDict(), {})


@pytest.mark.parametrize(
    ("name", "best_first"),
    [("margin", [2, 0, 1]), ("entropy", [2, 0, 1]), ("loss", [0, 2, 1]), ("balanced", [2, 0, 1])],
)
def test_candidates_are_ranked_by_name(name: str, best_first: list[int]) -> None:
    worths = rank(name, LIKELY, LABELS, context())
    assert np.argsort(worths)[::-1].tolist() == best_first


def test_a_file_has_a_ranking_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def by_node(likely, context):\n    return likely[:, 0] * context.node_id\n")
    choice = PolicyChoice(name="tide", ranking=f"{file}:by_node")
    assert choice.label == "tide-by_node"
    assert rank(choice.ranking, LIKELY, LABELS, context()) == pytest.approx(7 * LIKELY[:, 0])


def images(folder: Path, count: int, size: int = 8) -> FederatedData:
    """Images of ten classes, equally many of each."""
    draw = np.random.default_rng(3)
    rows = {
        "image": list(draw.integers(0, 256, (count, size, size)).astype(np.uint8)),
        "label": np.arange(count) % 10,
    }
    names = ClassLabel(names=[str(number) for number in range(10)])
    data = Dataset.from_dict(rows, features=Features({"image": Image(), "label": names}))
    DatasetDict({"train": data, "test": data}).save_to_disk(folder)
    return FederatedData(str(folder))


@pytest.mark.long
def test_labels_are_wrong_and_classes_rare_as_often_as_asked(tmp_path: Path) -> None:
    part = images(tmp_path / "data", 4000).partition("iid", 0, 1, 0)
    assert isinstance(part, Partition)
    labels = np.asarray(part.rows["label"])
    altered = AlteredPartition(part, 0.3, 1.0, np.random.default_rng(1))
    assert len(altered) == len(part)
    wrong = np.array([altered[place][1] for place in range(len(altered))]) != labels
    assert wrong.mean() == pytest.approx(0.3, abs=0.03)
    np.testing.assert_array_equal(altered[5][0], part[5][0])

    tail = AlteredPartition(part, 0.0, 100.0, np.random.default_rng(1))
    counts = np.bincount([tail[place][1] for place in range(len(tail))], minlength=10)
    expected = 400 * 100 ** (-np.arange(10) / 9)
    assert (abs(counts - expected) <= 4 * np.sqrt(expected) + 1).all()
