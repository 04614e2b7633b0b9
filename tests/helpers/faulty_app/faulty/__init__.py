"""A small gated app that stops where a test wants to kill it."""
