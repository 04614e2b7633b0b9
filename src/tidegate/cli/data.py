"""``tidegate data``: original files of a data set -> a folder that experiments read."""

import lzma
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tidegate.errors import ConfigurationError

NAMES = ("mnist", "cifar10", "imagenette", "hapt", "electricity")


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
) -> None:
    """Make a data set from its original files; nothing is downloaded.

    MNIST's four idx files, CIFAR-10's pickles, ImageNette's JPEG files, HAPT's sensor readings
    (one person a client), and the prices of an electricity market as CSV. Who has a network can
    name a data set of the Hugging Face hub in an experiment instead.

    MNIST, from the folder that holds MNIST/raw/*.gz:

        tidegate data mnist --from downloads

    ImageNette at 48x48 pixels:

        tidegate data imagenette --from downloads --size 48
    """
    if name not in NAMES:
        raise ConfigurationError(f"unknown data set {name!r}; choose from {', '.join(NAMES)}")
    given = os.environ.get("TIDEGATE_DATA") if source is None else source
    if given is None:
        raise ConfigurationError(
            "where are the original files? give --from FOLDER, or set TIDEGATE_DATA"
        )
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is no folder")
    if name == "electricity":
        made = to / "electricity.csv"
        _unpack(folder, made)
        typer.echo(f"wrote {made}: use trace:{made}:nswprice as a price")
        return
    try:
        from tidegate.experiments.prepare import SOURCES  # noqa: PLC0415 - not everyone has it
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"{missing.name} is not installed; pip install 'tidegate[experiments]'"
        ) from missing
    with Console(stderr=True).status(f"making {to / name}"):
        found = SOURCES[name](folder, size)
        found.save_to_disk(str(to / name))
    counts = ", ".join(f"{len(rows):,} {split}" for split, rows in found.items())
    typer.echo(f"wrote {to / name}: {counts}")


def _unpack(source: Path, made: Path) -> None:
    """Half-hourly prices, from elec.csv as it is or packed with xz."""
    for path in (source / "elec.csv.xz", source / "streams" / "elec.csv.xz"):
        if path.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(lzma.decompress(path.read_bytes()))
            return
    raise ConfigurationError(f"elec.csv.xz is neither in {source} nor in {source / 'streams'}")
