"""The control plane without a fleet: rounds as counts, summaries, curves, offline choice."""
