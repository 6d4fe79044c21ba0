"""Measurements that anybody can repeat; see README.md. Nothing here is installed."""
