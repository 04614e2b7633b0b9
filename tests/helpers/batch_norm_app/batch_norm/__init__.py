"""A Flower app without admission control, whose network has BatchNorm."""
