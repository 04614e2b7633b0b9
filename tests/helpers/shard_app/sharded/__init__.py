"""A linear model in NumPy, under one budget for one server or for three."""
