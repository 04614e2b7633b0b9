"""What runs on a device: streams, the gate that admits them, the buffer that keeps them."""
