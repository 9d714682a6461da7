"""The doctor on the login node: all that can be seen of machine, cluster and workspace without a job.

Submits nothing and changes nothing."""

from __future__ import annotations

import importlib.metadata
import locale
import os
import platform
import resource
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from automate import __version__
from automate.arena.preflight.findings import Finding, Run, run_command
from automate.arena.preflight.machine import machine_findings
from automate.campaign.doctoring.checks import Check, Mark, attempt, clock, folders, judge_folder, ok, sockets
from automate.campaign.doctoring.site import site_checks
from automate.cluster.base import Cluster
from automate.filesystems import FileSystem, of_one_machine, of_path, read_mounts
from automate.workspace import Workspace

PACKAGES = ("aiohttp", "aiolimiter", "click", "jinja2", "orjson", "pydantic", "pyyaml", "rich", "tenacity", "uvloop")
OPTIONAL = frozenset({"uvloop"})
FILES_WANTED = 1024
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")


def examine(workspace: Workspace, cluster: Cluster, run: Run = run_command) -> list[Check]:
    """All checks of the login node, in the order in which they are shown."""
    slurm = cluster.kind == "slurm"
    return [
        *attempt("Python", python), *attempt("packages", packages),
        *attempt("jobs' Python", lambda: jobs_python(run)),
        *(attempt("Slurm", partial(site_checks, workspace.settings)) if slurm else []),
        *attempt("preflight", lambda: _preflight(workspace, cluster, run)),
        *attempt("file system", lambda: places(workspace, slurm)), *attempt("folders", lambda: folders(workspace)),
        *attempt("clock", lambda: clock(workspace)), *attempt("umask", umask),
        *attempt("judge's folder", lambda: judge_folder(workspace.settings.judge, workspace.root)),
        *attempt("offline", lambda: offline(workspace)), *attempt("sockets", sockets),
        *attempt("limits", limits), *attempt("terminal", lambda: terminal(os.environ)),
    ]


def python() -> Iterator[Check]:
    """The interpreter of this command."""
    yield ok("Python", f"{platform.python_version()} at {sys.executable}; flock-hpc {__version__}")


def packages() -> Iterator[Check]:
    """Versions of what flock-hpc needs."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if name not in OPTIONAL:
                yield Check(Mark.ERROR, "packages", f"{name} is not installed",
                            f"{sys.executable} -m pip install {name}")
    yield ok("packages", ", ".join(f"{name} {version}" for name, version in found.items()))


def jobs_python(run: Run) -> Iterator[Check]:
    """Whether the interpreter that jobs call has this very flock-hpc, from whatever folder it is called."""
    status, out = run([sys.executable, "-c", "import automate; print(automate.__version__)"])
    said = out.strip().rpartition("\n")[2]
    if status != 0:
        yield Check(Mark.ERROR, "jobs' Python", f"{sys.executable} can't import flock-hpc: {said}",
                    "install flock-hpc into that environment; a folder to run it from is not enough")
    elif said != __version__:
        yield Check(Mark.ERROR, "jobs' Python", f"{sys.executable} has flock-hpc {said}, this command is {__version__}",
                    "install one of them into that environment")
    else:
        yield ok("jobs' Python", f"{sys.executable} imports flock-hpc {said}")


def _preflight(workspace: Workspace, cluster: Cluster, run: Run) -> Iterator[Check]:
    """Preflight's findings on commands and on a job like a batch's; folders and interpreter have lines of their own."""
    for finding in machine_findings(workspace, (), 0, cluster, cluster.kind, run):
        if finding.code not in ("FH502", "FH504", "FH505"):
            yield of_finding(finding)


def of_finding(finding: Finding) -> Check:
    """A preflight finding as a line of the doctor."""
    return Check(Mark(finding.level.value), f"{finding.subject} ({finding.code})", finding.what, finding.todo)


def places(workspace: Workspace, slurm: bool, mounts: list[FileSystem] | None = None) -> Iterator[Check]:
    """Which file systems workspace, checkout and interpreter lie on, and whether compute nodes can see them."""
    known = read_mounts() if mounts is None else mounts
    for subject, path in (("workspace", workspace.root), ("Arena-Hard checkout", workspace.arena_hard),
                          ("flock-hpc's environment", Path(sys.prefix))):
        system, own = of_path(path, known), of_one_machine(path)
        kind = system.kind if system else "a file system that the kernel doesn't name"
        what = f"{path} is on {kind}"
        if system is not None and system.shared:
            yield ok(subject, f"{what}, which many machines share")
        elif not slurm:
            yield ok(subject, what)
        elif own is not None or kind in ("tmpfs", "ramfs"):
            place = own or "a folder in memory"
            yield Check(Mark.ERROR, subject, f"{what}, below {place}, which every machine has for itself: compute "
                        "nodes don't see it", "put it on the cluster's shared file system")
        else:
            yield Check(Mark.NOTE, subject, f"{what}; whether compute nodes see it can't be told from here",
                        "flock-hpc doctor --job finds out")


def umask() -> Iterator[Check]:
    """What others of the user's group may do with new files."""
    mask = os.umask(0o077)
    os.umask(mask)
    if mask & 0o040:
        yield Check(Mark.NOTE, "umask", f"{mask:03o}: what you write can be read by nobody else",
                    "to share the workspace with your group: umask 007, and chmod g+rwxs the folder")
    elif mask & 0o020:
        yield ok("umask", f"{mask:03o}: your group can read what you write, and not change it")
    else:
        yield ok("umask", f"{mask:03o}: your group can read and change what you write")


def offline(workspace: Workspace) -> Iterator[Check]:
    """Whether the settings undo what keeps jobs from asking the internet."""
    settings = workspace.settings
    around = {**settings.environment, **settings.judge.environment.variables}
    undone = [name for name in OFFLINE if around.get(name, "1").lower() in ("0", "false", "no", "")]
    if undone:
        yield Check(Mark.WARNING, "offline", f"the settings' environment switches {', '.join(undone)} off: on a node "
                    "without internet loading waits for time-outs", "leave it out; jobs set it to 1")
    else:
        yield ok("offline", "jobs run with HF_HUB_OFFLINE=1; the judge is read from its folder")


def limits() -> Iterator[Check]:
    """How many files and processes this login may have; jobs often take these over."""
    for name, number, wanted in (("open files", resource.RLIMIT_NOFILE, FILES_WANTED),
                                 ("processes", resource.RLIMIT_NPROC, FILES_WANTED)):
        soft, hard = resource.getrlimit(number)
        shown = ["no limit" if value == resource.RLIM_INFINITY else str(value) for value in (soft, hard)]
        what = f"at most {shown[0]} (could be raised to {shown[1]})"
        if soft != resource.RLIM_INFINITY and soft < wanted:
            flag = "-n" if number == resource.RLIMIT_NOFILE else "-u"
            yield Check(Mark.WARNING, name, what, f"ulimit {flag} {wanted} before submitting: jobs take it over")
        else:
            yield ok(name, what)


def terminal(environ: Mapping[str, str]) -> Iterator[Check]:
    """What makes a view that stays open for a day work."""
    encoding = locale.getpreferredencoding(False)
    if encoding.lower().replace("-", "") != "utf8":
        yield Check(Mark.NOTE, "terminal", f"its encoding is {encoding}: some signs are shown as '?'",
                    "export LC_ALL=C.UTF-8")
    if environ.get("SSH_CONNECTION") and not environ.get("TMUX") and not environ.get("STY"):
        yield Check(Mark.NOTE, "terminal", "a view ends with this login; jobs don't",
                    "run --wait or the monitor inside tmux to come back to it")
