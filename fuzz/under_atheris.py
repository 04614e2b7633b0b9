"""One target in a process of its own, driven by atheris; ``fuzz.run`` starts it."""

import logging
import sys

import atheris

import fuzz

INSTRUMENTED = ["tidegate", "tomllib", "csv", "zipfile", "numpy.lib"]
"""Where a branch not taken before is worth keeping an input."""


def main() -> None:
    """Fuzz the target that the first argument names; the others are libFuzzer's."""
    name = sys.argv.pop(1)
    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=INSTRUMENTED):
        target = fuzz.load(name)
    target.seeds()  # makes what is cached before the clock of the first input runs
    atheris.Setup(sys.argv, target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
