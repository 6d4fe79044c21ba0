#!/bin/sh
exec mlxcel-server --config etc/mlxcel.toml --port 9090
