"""Slurm, or this machine in its place. Only this package calls Slurm's commands."""
