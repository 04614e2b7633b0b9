"""Clients that return the model as it came: what a round costs without training."""
