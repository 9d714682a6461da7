"""The module `rl`."""
