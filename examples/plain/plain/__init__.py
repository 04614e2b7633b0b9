"""A Flower app without admission control."""
