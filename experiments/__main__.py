"""``python -m experiments``, in a checkout."""

from experiments.tool.commands import main

if __name__ == "__main__":
    main()
