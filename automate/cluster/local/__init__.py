"""This machine in Slurm's place: a queue of files and its runner."""
