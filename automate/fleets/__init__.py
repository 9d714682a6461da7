"""Fleets as jobs: the worker inside its job, how many there are to be, and handing them in."""
