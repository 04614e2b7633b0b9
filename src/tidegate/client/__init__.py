"""The client side: streams of samples, the gate that admits them, and the buffer behind it."""
