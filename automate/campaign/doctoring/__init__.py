"""Checks of the login node and, by a small job, of a compute node."""
