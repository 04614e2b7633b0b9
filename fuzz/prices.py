"""Price laws and recorded prices."""

import itertools

import numpy as np

from fuzz.choices import Choices
from fuzz.limits import empty_folder, may_refuse
from tidegate.prices import PriceLaw, RecordedPrices, price_law

FILES = (
    b"hour,usd\n1,2.5\n2,3.5\n",
    b"\xef\xbb\xbfusd,eur\r\n1,2\r\n3,4\r\n",
    b'usd\n"1"\n"2"\n',
    b"usd\nnan\n",
    b"usd\n1e308\n1e308\n",
    b'usd\n"' + b"1" * 140_000 + b'"\n',
    b"usd\n1\r2\n",
    b"usd\n\0\n",
)
LAWS = ("constant:5.5", "uniform:1,10", "markov:2,8,0.75,0.5", "uniform:0,1.7e308", "trace:a:b")


def target(data: bytes) -> None:
    """A law from any text, or a trace from any file; then its mean and its first rounds."""
    choices = Choices(data)
    how, several = choices.number(1), choices.number(1)
    content = choices.rest()
    with empty_folder() as folder, may_refuse(ValueError, OSError):
        if how:
            file = folder / "prices.csv"
            file.write_bytes(content)
            _use(RecordedPrices.from_csv(file, ["usd", "eur"] if several else ["usd"]))
        elif not content.startswith(b"trace:"):  # whose path may lead to a device that never ends
            _use(price_law(content.decode("utf-8", "replace")))


def _use(law: PriceLaw) -> None:
    size = law.num_columns if isinstance(law, RecordedPrices) and law.num_columns > 1 else None
    means = [law.mean(10), *itertools.islice(law.rounds(np.random.default_rng(0), size), 3)]
    if not all(np.isfinite(price).all() and np.all(np.asarray(price) >= 0) for price in means):
        raise AssertionError(f"{law} gives {means}")


def seeds() -> list[bytes]:
    """Files of one and two columns, and every law."""
    files = [bytes([1, several]) + file for file in FILES for several in (0, 1)]
    return [*files, *(b"\0\0" + law.encode() for law in LAWS)]
