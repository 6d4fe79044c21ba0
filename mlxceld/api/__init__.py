"""The HTTP API: routes, dialects and error shapes. Imports no MLX."""
