"""What runs on a device: streams of samples, the gate that admits them, the buffer behind it."""
