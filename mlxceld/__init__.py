"""One MLX language model behind the HTTP API of llama-server."""

__version__ = "0.1.0"
