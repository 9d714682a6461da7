#!/usr/bin/env python3
"""Validate Flock AI Arena assignments on this machine: fetch, run and report, for ever.

    python scripts/run.py MODULE --task_ids ID,ID... --flock-api-key KEY --hf-token TOKEN [options]

FLOCK_API_KEY, HF_TOKEN, TIME_SLEEP and ASSIGNMENT_LOOKUP_INTERVAL stand in for the options. On a cluster use
'flock-hpc validation loop', which hands assignments to Slurm."""

from __future__ import annotations

import sys
from pathlib import Path

try:
    from automate.cli.validation.entry import main
except ModuleNotFoundError as error:
    if error.name not in {"automate", "click"}:
        raise
    root = Path(__file__).resolve().parent.parent
    sys.exit(f"Error: {error.name} is not installed here\n  -> pip install -r {root / 'requirements.txt'}")

if __name__ == "__main__":
    sys.exit(main())
