"""A fleet before a server is asked for: its address, its kind, its secrets, its name, its engine's job, the router.

Cheap: looks at this machine and at the fleet's folder; asks Slurm for its partitions only. Never starts anything."""

from __future__ import annotations

import difflib
import importlib.util
import ipaddress
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from automate.arena.preflight.findings import Finding, error, from_error, note, passed, some, warning
from automate.arena.preflight.time_limit import load_seconds
from automate.cluster import asking
from automate.durations import in_words, seconds_of
from automate.errors import ConfigError, FlockError
from automate.fleet_places import FleetPlaces
from automate.fleets.address import THIS, Machine, choose
from automate.fleets.eye import Eye
from automate.serving.fleet.keys import read_secrets
from automate.serving.fleet.records import FleetSpec
from automate.serving.fleet.registry import read_spec
from automate.settings import Settings
from automate.workspace import Workspace

FLEET = "judge"
"""The name of a campaign's fleet."""
Runs = Iterable[Mapping[str, Any]]


def fleet_checks(workspace: Workspace, executor: str, *, name: str = FLEET, runs: Runs = (), machine: Machine = THIS,
                 environ: Mapping[str, str] | None = None,
                 partitions: Callable[[], Collection[str] | None] = asking.partitions) -> list[Finding]:
    """All that can be known of a campaign's fleet before its servers are asked for.

    `executor` is slurm or local; `runs`: the workspace's run records, for how long loading takes; `partitions`: asks
    which there are, None where nobody can say.
    """
    settings, places = workspace.settings, FleetPlaces(workspace.root, name)
    found = [*kind_findings(settings), *address_findings(settings, executor, machine, environ or {})]
    found += [*folder_findings(places, settings), *router_findings()]
    if executor == "slurm" and settings.fleet.engine == "job":
        found += [*partition_findings(settings, partitions()), *engine_findings(workspace, runs)]
    return found


def kind_findings(settings: Settings) -> Iterator[Finding]:
    """FH602: a judge that no fleet can serve."""
    if settings.judge.kind == "openai":
        yield error("FH602", "judge.kind", "a fleet starts servers of the judge, and this judge is served by others",
                    "leave --fleet out, or set judge.kind: vllm")
    if settings.judge.engine == "upstream":
        yield error("FH602", "judge.engine", "upstream's own program asks one server only",
                    "set judge.engine: builtin, or leave --fleet out")


def address_findings(settings: Settings, executor: str, machine: Machine, environ: Mapping[str, str]
                     ) -> Iterator[Finding]:
    """FH601: what fleet.address means on this machine. A node may have what this machine lacks: never an error."""
    subject = "fleet.address"
    try:
        place = choose(settings.fleet.address, environ, machine)
    except ConfigError as problem:
        where = "on the nodes it may mean something: 'flock-hpc doctor --job' looks there" if executor == "slurm" else (
            problem.todo or "")
        yield warning("FH601", subject, f"on this machine {problem.what}", where)
        return
    if ipaddress.ip_address(place.bind).is_loopback and executor == "slurm":
        yield warning("FH601", subject, f"'{settings.fleet.address}' is {place.bind} on this machine: others can't "
                      "reach a server there", "set fleet.address to the network interface, the host name or the IP "
                      "address by which the nodes reach each other")
        return
    yield passed("FH601", subject, f"'{settings.fleet.address}' is {place.host} on this machine")


def folder_findings(places: FleetPlaces, settings: Settings) -> Iterator[Finding]:
    """FH603 and FH604: the fleet of this name that is there already."""
    try:
        if not places.home.exists():
            return
        if places.key.exists():
            read_secrets(places)
        spec = read_spec(places)
    except (FlockError, OSError) as problem:
        yield from_error("FH603", str(places.home), problem)
        return
    if spec is not None and (wrong := _other(places, spec, settings)):
        yield error("FH604", f"fleet {places.name}", wrong,
                    f"stop it with 'flock-hpc serve --stop --name {places.name}', or wait for its end")


def _other(places: FleetPlaces, spec: FleetSpec, settings: Settings) -> str:
    """How a fleet that lives differs from the one that is wanted; empty where none lives, or it doesn't."""
    alive = sum(1 for one in Eye(places).workers(spec, []).values() if one.life == "alive")
    if not alive or spec.group_of(settings.judge.name) is not None:
        return ""
    served = some([group.model for group in spec.groups])
    return f"a fleet of this name is up with {alive} server(s) of {served}, not of {settings.judge.name}"


def router_findings(there: Callable[[], bool] = lambda: importlib.util.find_spec("vllm_router") is not None
                    ) -> Iterator[Finding]:
    """FH605: only other programs need the router."""
    if not there():
        yield note("FH605", "router", "vllm-router is not installed: 'flock-hpc router' won't start; 'judge --fleet' "
                   "does without it", "pip install 'flock-hpc[router]', where other programs are to use the fleet")


def partition_findings(settings: Settings, there: Collection[str] | None) -> Iterator[Finding]:
    """FH606: the partition of the engine's own job."""
    wanted = settings.fleet.engine_slurm.partition
    for name in (wanted or "").split(","):
        if name and there is not None and name not in there:
            near = difflib.get_close_matches(name, there, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            yield error("FH606", "fleet.engine_slurm.partition", f"'{name}' is not on this cluster",
                        f"{hint}here: {some(sorted(there)) or 'none'}")


def engine_findings(workspace: Workspace, runs: Runs) -> Iterator[Finding]:
    """FH607: an engine whose time is over before the first server is ready."""
    settings = workspace.settings
    limit = seconds_of(settings.fleet.engine_slurm.time or settings.slurm.time)
    load, source, _ = load_seconds(settings, workspace.root, runs)
    if limit <= load:
        key = "fleet.engine_slurm.time" if settings.fleet.engine_slurm.time else "slurm.time"
        yield warning("FH607", key, f"the engine's job may run for {in_words(limit)}, and a server takes about "
                      f"{in_words(load)} to load ({source}): it would end before it plays a game",
                      "give it as long as the servers; it needs no GPU")
