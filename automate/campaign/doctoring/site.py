"""The doctor's questions to Slurm: does it answer, and may these settings be asked of it.

Only asks; a question that gets no answer is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from automate.campaign.doctoring.checks import Check, Mark, attempt, ok
from automate.cluster import site
from automate.cluster.site import Association, Partition
from automate.durations import in_words, seconds_of
from automate.errors import ClusterError
from automate.settings import Settings, Slurm

_UP = frozenset({"idle", "mixed", "allocated", "completing", "planned", "reserved", "powered_down", "powering_up",
                 "idle~", "mixed-", "allocated+"})


def site_checks(settings: Settings) -> list[Check]:
    """What Slurm says: version, controller, accounting, and the settings' partition, time, account and QOS."""
    found = [*attempt("Slurm", lambda: [ok("Slurm", site.version())])]
    up = attempt("controller", _controller)
    found += up
    found += attempt("accounting", _accounting)
    if any(check.mark is Mark.ERROR for check in up):
        return [*found, Check(Mark.UNKNOWN, "partition", "can't be asked while the controller doesn't answer",
                              "run this again when it does")]
    found += attempt("partition", lambda: _partition(settings.slurm))
    found += attempt("account", lambda: account_checks(settings.slurm, _associations()))
    return found


def _controller() -> Iterator[Check]:
    up, words = site.ping()
    if up:
        yield ok("controller", words)
    else:
        yield Check(Mark.ERROR, "controller", f"doesn't answer: {words}",
                    "nothing is lost: records stay on disk; try again later, or ask your administrators")


def _accounting() -> Iterator[Check]:
    try:
        words = site.accounting()
    except ClusterError as error:
        words = error.what
    if words is None:
        yield ok("accounting", "sacct answers")
    else:
        yield Check(Mark.WARNING, "accounting", f"sacct gives no answers: {words}",
                    "how jobs ended is told from squeue and from the jobs' own records alone")


def _associations() -> list[Association] | None:
    try:
        return site.associations()
    except ClusterError:
        return None


def _partition(slurm: Slurm) -> Iterator[Check]:
    every = site.partitions()
    for partition in wanted_partitions(slurm, every):
        yield from partition_checks(slurm, partition, every, site.node_states)


def wanted_partitions(slurm: Slurm, every: dict[str, Partition]) -> list[str]:
    """The partitions that the settings name, or the cluster's default one."""
    if slurm.partition:
        return [name.strip() for name in slurm.partition.split(",") if name.strip()]
    return [name for name, partition in every.items() if partition.default] or [""]


def partition_checks(slurm: Slurm, name: str, every: dict[str, Partition],
                     nodes: Callable[[str], dict[str, int]]) -> Iterator[Check]:
    """Whether a partition is there, is up, and takes jobs of this length, account and QOS."""
    found = every.get(name)
    subject = f"partition {name}".strip()
    if found is None:
        what = f"there is no partition '{name}'" if name else "none is given, and the cluster has no default one"
        yield Check(Mark.ERROR, subject, what, "set slurm.partition in flock-hpc.yaml to one of: "
                    + (", ".join(sorted(every)) or "none that you can see"))
        return
    if found.state != "UP":
        yield Check(Mark.ERROR, subject, f"is {found.state}", "set slurm.partition to one that is up, or wait")
    else:
        yield _nodes(subject, nodes(name))
    wanted = seconds_of(slurm.time)
    if wanted > found.max_time:
        yield Check(Mark.ERROR, "time limit", f"slurm.time is {slurm.time}, {name} allows {in_words(found.max_time)}",
                    "lower slurm.time; a campaign goes on in the next job where one ends")
    else:
        yield ok("time limit", f"{slurm.time}; {name} allows {in_words(found.max_time)}")
    for what, value, allowed, denied in (
            ("account", slurm.account, found.allow_accounts, found.deny_accounts),
            ("qos", slurm.qos, found.allow_qos, found.deny_qos)):
        if value is not None and ((allowed is not None and value not in allowed) or value in denied):
            yield Check(Mark.ERROR, subject, f"does not take jobs of {what} '{value}'",
                        f"set slurm.{what}" + (f" to one of: {', '.join(sorted(allowed))}" if allowed else ""))


def _nodes(subject: str, states: dict[str, int]) -> Check:
    shown = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    if any(state.rstrip("*~#%$@+-!^").lower() in _UP for state in states):
        return ok(subject, f"is up; nodes: {shown}")
    return Check(Mark.WARNING, subject, f"is up, but none of its nodes is ({shown or 'it has none'})",
                 "see 'sinfo -R' for why; jobs wait until one is back")


def account_checks(slurm: Slurm, known: Iterable[Association] | None) -> Iterator[Check]:
    """Whether this user may charge the account and use the QOS that the settings name."""
    rows = None if known is None else list(known)
    if not rows:
        if slurm.account or slurm.qos:
            why = "sacctmgr gives no answer" if rows is None else "sacctmgr lists no account of yours"
            yield Check(Mark.UNKNOWN, "account", f"whether slurm.account and slurm.qos may be used: {why}",
                        "what 'sbatch --test-only' says (FH503) counts")
        return
    accounts = sorted({row.account for row in rows})
    if slurm.account is not None and slurm.account not in accounts:
        yield Check(Mark.ERROR, "account", f"you may not charge '{slurm.account}'",
                    f"set slurm.account to one of: {', '.join(accounts)}")
        return
    yield ok("account", slurm.account or f"none is given; yours: {', '.join(accounts)}")
    qos = {name for row in rows if slurm.account in (None, row.account) for name in row.qos}
    if slurm.qos is not None and qos and slurm.qos not in qos:
        yield Check(Mark.ERROR, "qos", f"you may not use '{slurm.qos}'",
                    f"set slurm.qos to one of: {', '.join(sorted(qos))}")
    elif slurm.qos is not None:
        yield ok("qos", slurm.qos)
