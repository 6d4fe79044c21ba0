"""`mlxcel-migrate`: carries older set-ups, and those of other servers, over exactly.

`sources` reads them, `convert` says what they mean today, after a default flip and
after the migration, `work` and `files` write. Nothing here imports MLX or the server.
"""
