"""`mlxcel-verify`: asks a running server whether its slots are what it says they are.

Works against any server with llama-server's API. `ask` speaks HTTP, `measure` sends the
requests and writes a `record`, `verdict` judges a record, `report` and `plot` show it.
Nothing here imports MLX or the server.
"""
