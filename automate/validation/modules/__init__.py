"""The modules that ship with the package, each with its own environment."""
