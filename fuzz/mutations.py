"""Mutations that need no atheris: the same ones for the same seed."""

import random
from collections.abc import Iterator

BLOCK = 16


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Data with a few bytes changed, a block moved, removed or inserted."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(changed) + 1)
        what = draw.randrange(5)
        if what == 0:
            del changed[place : place + draw.randint(1, BLOCK)]
        elif what == 1:
            changed[place:place] = draw.randbytes(draw.randint(1, BLOCK))
        elif what == 2:
            start = draw.randrange(len(changed) + 1)
            changed[place:place] = changed[start : start + BLOCK]
        elif place < len(changed):
            changed[place] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
    return bytes(changed)


def inputs(seeds: list[bytes], mutations: int, seed: int) -> Iterator[bytes]:
    """The seeds, then so many mutations of them."""
    draw = random.Random(seed)  # noqa: S311 - nothing here is secret
    yield from seeds
    for _ in range(mutations):
        yield mutated(draw.choice(seeds), draw)
