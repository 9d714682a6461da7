"""Checkpoints over training steps: curves, best ones, how early one could have stopped."""
