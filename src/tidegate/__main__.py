"""``python -m tidegate``."""

from tidegate.cli import main

main()
