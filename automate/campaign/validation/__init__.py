"""Flock validation as its commands do it: the rooms put together, waits shown, results told."""
