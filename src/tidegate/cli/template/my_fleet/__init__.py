"""A Flower app in which every fresh sample has a price."""
