import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tidegate._internal import saving
from tidegate._internal.arrays import CountArray
from tidegate.policies.acdpp import acdpp
from tidegate.prices import ConstantPrice
from tidegate.problem import Problem
from tidegate.simulation.rounds import begin, simulate
from tidegate.theory.reuse import ReuseTally


@dataclass(frozen=True, eq=False)
class Nested:
    tally: ReuseTally
    cohorts: tuple[CountArray, ...]
    weight: float


def there_and_back(state: Nested, template: Nested) -> Nested:
    file = io.BytesIO()
    saving.write(state, file)
    file.seek(0)
    return saving.read(template, file)


def test_every_bit_comes_back() -> None:
    # Python integers may outgrow 64 bits, and do in a long run of a large fleet.
    cohorts = np.arange(3, dtype=np.int32), np.arange(2, dtype=np.int32)
    state = Nested(ReuseTally(3, 7, 2**80 + 1), cohorts, 0.1)
    back = there_and_back(state, Nested(ReuseTally(), (), 0.0))
    assert back.tally == state.tally
    assert back.weight == 0.1
    assert [array.tolist() for array in back.cohorts] == [[0, 1, 2], [0, 1]]
    assert all(array.dtype == np.int32 for array in back.cohorts)


def test_a_state_of_another_kind_is_refused() -> None:
    file = io.BytesIO()
    saving.write(ReuseTally(), file)
    file.seek(0)
    with pytest.raises(ValueError, match="saved by another policy or version"):
        saving.read(Nested(ReuseTally(), (), 0.0), file)


def test_what_cannot_be_saved_is_named() -> None:
    with pytest.raises(TypeError, match="cannot save a set"):
        saving.write({1}, io.BytesIO())


def test_pickles_are_never_read() -> None:
    file = io.BytesIO()
    np.savez(file, tree=np.array([{"a": 1}], dtype=object))
    file.seek(0)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        saving.read(ReuseTally(), file)


def problem(capacities: list[int]) -> Problem:
    return Problem(buffer_capacities=capacities, budget=20.0, mean_price=2.0, num_rounds=30)


def test_a_file_of_any_name_is_replaced_in_one_step(tmp_path: Path) -> None:
    given, path = problem([8, 12]), tmp_path / "state"
    policy = acdpp(given)
    for until in (3, 7):
        run = simulate(policy, given, ConstantPrice(2.0), 0, until=until)
        saving.save(run.final, path)
        back = saving.restore(begin(policy, given), path)
        assert back.round_number == until
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


def test_a_state_of_another_policy_or_fleet_is_refused(tmp_path: Path) -> None:
    given, path = problem([8, 12]), tmp_path / "state"
    run = simulate(acdpp(given), given, ConstantPrice(2.0), 0, until=5)
    saving.save(run.final, path)
    other = acdpp(given, retention_horizon=6)
    with pytest.raises(ValueError, match="saved with retention_horizon = 2, but this policy has 6"):
        saving.restore(begin(other, given), path)
    larger = problem([8, 12, 4])
    with pytest.raises(ValueError, match=r"array of \(2,\) float64, not of \(3,\) float64"):
        saving.restore(begin(acdpp(larger), larger), path)
    swapped = problem([12, 8])
    with pytest.raises(ValueError, match="saved with shares"):
        saving.restore(begin(acdpp(swapped), swapped), path)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    saving.save(ReuseTally(1, 2, 3), path)
    with pytest.raises(TypeError, match="cannot save"):
        saving.save(Nested(ReuseTally(), (), "half"), path)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot save"):
        saving.save(np.array([object()]), path)
    assert saving.restore(ReuseTally(), path) == ReuseTally(1, 2, 3)
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


def test_numbers_must_be_numbers() -> None:
    file = io.BytesIO()
    state = '{"fields": {"distinct_samples": "oops", "total_uses": 1, "squared_uses": 1}}'
    text = np.frombuffer(f'{{"version": 1, "state": {state}}}'.encode(), dtype=np.uint8)
    np.savez(file, tree=text)
    file.seek(0)
    with pytest.raises(ValueError, match="holds 'oops' where a number should be"):
        saving.read(ReuseTally(), file)


def test_another_format_is_refused() -> None:
    file = io.BytesIO()
    text = np.frombuffer(b'{"version": 99, "state": 1}', dtype=np.uint8)
    np.savez(file, tree=text)
    file.seek(0)
    with pytest.raises(ValueError, match="has format 99, but this program reads 1"):
        saving.read(ReuseTally(), file)
