"""LeNet on MNIST where every fresh sample has a price."""
