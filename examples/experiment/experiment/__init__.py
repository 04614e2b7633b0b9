"""One run of an experiment, as a Flower app."""
