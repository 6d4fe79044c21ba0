"""The life of the daemon: start, serve, drain, stop, and what it owes its manager."""
