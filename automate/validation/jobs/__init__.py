"""Validation jobs: handing assignments in, doing them inside a job, settling what dead jobs left.

Only `cluster/` talks to Slurm; nothing here ever talks to the API."""

from automate.validation.jobs.handing import Array, HandedIn, cluster_of, executor_of, hand_in
from automate.validation.jobs.one import Place, Stop, run_one
from automate.validation.jobs.second import second_step
from automate.validation.jobs.settling import Settled, settle
from automate.validation.jobs.waiting import Progress, progress, wait

__all__ = ["Array", "HandedIn", "Place", "Progress", "Settled", "Stop", "cluster_of", "executor_of", "hand_in",
           "progress", "run_one", "second_step", "settle", "wait"]
