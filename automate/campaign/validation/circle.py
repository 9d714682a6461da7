"""Puts the rooms of Flock validation together for the commands: API, hub, spool, environments, array jobs.

Holds keys only in this process; nothing that it starts inherits them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import requests

from automate.claims import Claim
from automate.cluster.base import Cluster
from automate.cluster.queue import job_alive
from automate.errors import ConfigError, ModuleEnvironmentError
from automate.processes import keep_private
from automate.settings_validation import Validation
from automate.validation import environments, jobs
from automate.validation.acquire import acquire
from automate.validation.api import FlockApi
from automate.validation.assignments import Assignment
from automate.validation.audit import Audit
from automate.validation.caches import Cleaned, clean
from automate.validation.catalogue import Source, find
from automate.validation.checking import check_config, check_input
from automate.validation.environments.own import missing
from automate.validation.fetching import Fetcher
from automate.validation.hub import Hub
from automate.validation.inner.files import Result
from automate.validation.jobs.resources import secret_names
from automate.validation.secrets import read_key, without_values
from automate.validation.spool import Spool
from automate.validation.submitting import Submitted, submit_all
from automate.validation_places import ValidationPlaces
from automate.workspace import Workspace

Say = Callable[[str], None]
KEEP_SCRATCH = "FLOCK_HPC_KEEP_SCRATCH"


@dataclass(frozen=True)
class Given:
    """Keys that were typed instead of exported; never shown."""

    api_key: str | None = field(default=None, repr=False)
    hub_token: str | None = field(default=None, repr=False)

    @property
    def values(self) -> tuple[str, ...]:
        """Those there are."""
        return tuple(one for one in (self.api_key, self.hub_token) if one)


@dataclass(frozen=True)
class Circle:
    """All that the commands of validation work with, for one workspace. `stop` is asked between steps."""

    workspace: Workspace
    say: Say
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    given: Given = Given()
    executor: str | None = None
    debug: bool = False

    def __post_init__(self) -> None:
        """A process that holds a key is nobody else's to look into."""
        if self.holds:
            keep_private()

    @property
    def holds(self) -> tuple[str, ...]:
        """Where this process has keys from: variables, options."""
        named = tuple(name for name in secret_names(self.workspace.settings) if self.environ.get(name, "").strip())
        return named + (("the command line",) if self.given.values else ())

    @property
    def around(self) -> dict[str, str]:
        """The environment for all that is made of this one: no variable holds a key that was typed."""
        return without_values(self.environ, self.given.values)

    @property
    def settings(self) -> Validation:
        return self.workspace.settings.validation

    @property
    def places(self) -> ValidationPlaces:
        return self.workspace.validation

    @cached_property
    def spool(self) -> Spool:
        return Spool(self.places, stale=self.workspace.settings.limits.claim_stale, job_alive=job_alive)

    @cached_property
    def where(self) -> str:
        """`slurm` or `local`."""
        return jobs.executor_of(self.executor or self.workspace.settings.executor)

    @cached_property
    def cluster(self) -> Cluster | None:
        return jobs.cluster_of(self.where)

    @cached_property
    def api(self) -> FlockApi:
        """The API's client. Raises ConfigError where there is no key."""
        name = self.settings.api_key_env
        key = self.given.api_key or read_key(self.environ, name)
        if not key:
            raise ConfigError("no API key", where=f"environment variable {name}",
                              todo=f"export {name}=... on the login node; jobs never see it")
        token = self.hub_token
        return FlockApi(self.settings, key, Audit(self.places.audit), secrets=[token] if token else [],
                        debug=self.places.debug if self.debug else None)

    @property
    def hub_token(self) -> str | None:
        return self.given.hub_token or read_key(self.environ, self.settings.hf_token_env)

    @cached_property
    def hub(self) -> Hub:
        return Hub(self.settings, self.hub_token)

    def source(self, module: str) -> Source:
        """A module by name. Raises ConfigError with near matches."""
        return find(module, self.places)

    def ready(self, module: str, task_ids: Sequence[str]) -> None:
        """What can be known before anything starts: module, its environment, key, tasks. Raises FlockError."""
        self.prepared(module, task_ids)
        self.known(task_ids)

    def prepared(self, module: str, task_ids: Sequence[str]) -> None:
        """What is known without the API: module, its environment, its config. Raises FlockError."""
        source = self.source(module)
        environments.inner_call(source, self.places, [])
        lacking = missing(source.requirements) if self.settings.manager == "current" else ""
        if lacking:
            raise ModuleEnvironmentError(lacking, where=f"module {module}, validation.manager: current",
                                         todo="install that, or set validation.manager to another one and run "
                                         f"'flock-hpc validation env create {module}'")
        for task in task_ids:
            check_config(self.places, self.workspace.settings, self.around, module, task)

    def known(self, task_ids: Sequence[str]) -> None:
        """That the API accepts the key and knows the tasks. Raises FlockError."""
        api = self.api
        known = {task.id for task in api.tasks()}
        unknown = [task for task in task_ids if task not in known]
        if unknown:
            some = ", ".join(sorted(known)[:8]) or "none"
            raise ConfigError(f"the API knows no task {', '.join(unknown)}", where="--task_ids",
                              todo=f"tasks that it knows: {some}")
        api.check_key(task_ids[0])

    # --- the parts ------------------------------------------------------------------------------
    def fetcher(self, module: str, task_ids: Sequence[str], most: int | None,
                stop: Callable[[], bool] = lambda: False) -> Fetcher:
        session = requests.Session()
        check = check_input(self.places, self.workspace.settings, self.around)

        def files(assignment: Assignment) -> Assignment:
            return acquire(assignment, spool=self.spool, places=self.places, hub=self.hub, session=session, check=check,
                           stop=stop)

        return Fetcher(self.places, self.spool, self.api, module, task_ids, acquire=files, stop=stop,
                       most=most or self.settings.max_outstanding)

    def settle(self) -> jobs.Settled:
        """Take in what dead jobs left."""
        return jobs.settle(self.workspace, self.spool, self.cluster)

    def hand_in(self, most: int | None = None, ids: Sequence[str] | None = None) -> jobs.HandedIn:
        """Hand over what is ready. Raises ConfigError where a stranger's code would run beside keys."""
        self.apart()
        environ = self.around | ({KEEP_SCRATCH: "1"} if self.debug else {})
        return jobs.hand_in(self.workspace, self.spool, executor=self.where, most=most, ids=ids, cluster=self.cluster,
                            environ=environ)

    def apart(self) -> None:
        """Submissions' own code never runs on the machine of the keys. Raises ConfigError that says what to do."""
        if self.where == "local" and self.settings.remote_code and self.holds:
            raise ConfigError(
                "submissions' own code would run as you on this machine, where the keys are "
                f"({', '.join(self.holds)})", where="validation.remote_code with executor local",
                todo="let Slurm run the jobs, or run 'flock-hpc validation run --submit' in a shell without keys, "
                "or turn validation.remote_code off")

    def submit(self, claim: Claim | None = None, *, hurry: bool = False,
               stop: Callable[[], bool] = lambda: False) -> Submitted:
        """Report what is done; second steps first."""
        def finish(assignment: Assignment) -> Result:
            return jobs.second_step(assignment, self.places, self.around, settings=self.workspace.settings)

        return submit_all(self.places, self.spool, self.api, finish=finish, claim=claim, hurry=hurry, stop=stop)

    def clean(self) -> Cleaned:
        """Remove old models that nothing uses."""
        return clean(self.places, self.spool, time.time())
