"""One folder for each experiment, and the tool that runs them: ``python -m experiments``."""
