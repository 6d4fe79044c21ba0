"""Every document that is born from the option table: pure functions from data to text.

`mlxceld.generate` writes what these modules make. They run where the source tree is;
the daemon imports none of them.
"""
