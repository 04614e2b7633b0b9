"""``python -m experiments data``: make a data set of its original files."""

import lzma
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from experiments.tool.running import NOT_INSTALLED
from tidegate.errors import ConfigurationError

NAMES = ("mnist", "fashion_mnist", "cifar10", "imagenette", "hapt", "electricity")


def data(
    name: Annotated[str, typer.Argument(help=f"{', '.join(NAMES)}.")],
    *,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Folder with the original files; $TIDEGATE_DATA by default."),
    ] = None,
    to: Annotated[Path, typer.Option(help="Folder in which NAME is made.")] = Path("data"),
    size: Annotated[
        int | None, typer.Option(min=8, help="Make images this many pixels high and wide.")
    ] = None,
    features: Annotated[
        bool,
        typer.Option(
            "--features",
            help="Store features of each image in its place, in NAME-features; a linear model "
            "learns from them in seconds. 2,000 training images are set apart to learn how.",
        ),
    ] = False,
) -> None:
    """Make a data set from its original files; nothing is downloaded.

    It reads the four idx files of MNIST or Fashion-MNIST, CIFAR-10's pickles, ImageNette's JPEG
    files, the sensor readings of HAPT (one person a client), and the prices of an electricity
    market as CSV. With a network, an experiment can name a data set of the Hugging Face hub
    instead.

    MNIST, from the folder that holds MNIST/raw/*.gz:

        python -m experiments data mnist --from downloads

    ImageNette at 48x48 pixels:

        python -m experiments data imagenette --from downloads --size 48
    """
    if name not in NAMES:
        raise ConfigurationError(f"unknown data set {name!r}; choose from {', '.join(NAMES)}")
    if features and name in ("hapt", "electricity"):
        raise ConfigurationError(f"--features works on images, and {name} has none")
    given = os.environ.get("TIDEGATE_DATA") if source is None else source
    if given is None:
        raise ConfigurationError(
            "give the folder of the original files with --from FOLDER, or set TIDEGATE_DATA"
        )
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a folder; give the folder of the original files")
    if name == "electricity":
        made = to / "electricity.csv"
        _unpack(folder, made)
        typer.echo(f"wrote {made}: use trace:{made}:nswprice as a price")
        return
    try:
        # Not everyone has what these need.
        from experiments.tool.features import with_features  # noqa: PLC0415
        from experiments.tool.prepare import SOURCES  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise ConfigurationError(NOT_INSTALLED.format(missing.name)) from missing
    made = to / (f"{name}-features" if features else name)
    with Console(stderr=True).status(f"making {made}"):
        found = SOURCES[name](folder, size)
        if features:
            found = with_features(found)
        found.save_to_disk(str(made))
    counts = ", ".join(f"{len(rows):,} {split}" for split, rows in found.items())
    typer.echo(f"wrote {made}: {counts}")


def _unpack(source: Path, made: Path) -> None:
    """Return half-hourly prices from elec.csv, plain or packed with xz."""
    for path in (source / "elec.csv.xz", source / "streams" / "elec.csv.xz"):
        if path.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(lzma.decompress(path.read_bytes()))
            return
    raise ConfigurationError(f"found no elec.csv.xz in {source} or {source / 'streams'}")
