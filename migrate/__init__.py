"""The place of `mlxcel-migrate`, which does not exist yet: there is no code here.

The folder is there because the build installs it as `mlxceld.migrate`, and that
mapping is tested from the start.
"""
