"""flock-hpc: LLM evaluation campaigns on a Slurm cluster."""

__version__ = "0.1.0"
