"""A run's folder, written by its server and read from outside, and the sinks that watch a run."""
