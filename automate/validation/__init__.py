"""Flock AI Arena validation: assignments are fetched where the internet is, validated on compute nodes, submitted.

Importing this imports nothing: the inner layer runs in environments that hold little."""
