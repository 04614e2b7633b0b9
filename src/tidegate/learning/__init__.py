"""Models and local training: the only folder that needs torch."""
