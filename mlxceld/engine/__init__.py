"""The engine process: the only one that touches MLX arrays."""
