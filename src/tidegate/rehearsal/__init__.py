"""A whole Flower deployment on this machine: its keys, its processes, a crash, and its books."""
