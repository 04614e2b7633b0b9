"""A run's folder, written by its server and read by others, and the sinks that watch a run."""
