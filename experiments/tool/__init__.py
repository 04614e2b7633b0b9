"""Experiments: every policy on every seed, compared on real learning tasks."""
