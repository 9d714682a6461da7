"""Slurm's limits on submitted jobs: which hold for a campaign's jobs, and how many more may be handed in now.

Pure over what Slurm printed (`asking.py` asks). Never makes a limit up: what can't be read is not known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

_SUBMIT_LIMIT = re.compile(r"(QOS|Assoc)(Max|Grp)Submit\w*|MaxSubmitJobs\w*", re.IGNORECASE)
_OTHER_LIMIT = re.compile(r"(QOS|Assoc)(Max|Grp|Min)(?!Submit)\w+", re.IGNORECASE)


@dataclass(frozen=True)
class Asked:
    """As whom and for what a campaign submits; None where the settings leave it to Slurm."""

    user: str
    account: str | None = None
    qos: str | None = None
    partition: str | None = None


@dataclass(frozen=True)
class Queued:
    """A job (or array task) that counts against limits."""

    user: str
    account: str
    qos: str
    partition: str


@dataclass(frozen=True)
class Limit:
    """At most `most` jobs that match; an empty field matches all. `name` is Slurm's own, with whose it is."""

    name: str
    most: int
    user: str = ""
    accounts: frozenset[str] = frozenset()
    qos: str = ""
    partition: str = ""

    def counts(self, job: Queued) -> bool:
        """Whether a job counts against this limit."""
        return ((not self.user or job.user == self.user) and (not self.accounts or job.account in self.accounts)
                and (not self.qos or job.qos == self.qos)
                and (not self.partition or self.partition in job.partition.split(",")))


@dataclass(frozen=True)
class SubmitLimits:
    """The limits that hold; `max_tasks` is the most tasks of one array, None where not known."""

    limits: tuple[Limit, ...] = ()
    max_tasks: int | None = None

    @property
    def everybody(self) -> bool:
        """Whether other users' jobs count too."""
        return any(not limit.user for limit in self.limits)


@dataclass(frozen=True)
class Room:
    """How many more jobs fit now, and because of what no more; None: as many as there are."""

    jobs: int | None = None
    why: str = ""
    counts: Callable[[int], str] | None = field(default=None, compare=False)
    """What `why` is after so many jobs more, where it names numbers."""

    @classmethod
    def counted(cls, jobs: int, counts: Callable[[int], str]) -> Room:
        """Room for `jobs` whose reason names numbers: `counts(n)` says it after n jobs more."""
        return cls(jobs, counts(0), counts)

    def least(self, other: Room) -> Room:
        """The tighter one of two."""
        if other.jobs is None:
            return self
        return other if self.jobs is None or other.jobs < self.jobs else self

    def taken(self, count: int) -> Room:
        """What is left after `count` jobs."""
        if self.jobs is None:
            return self
        left, counts = max(0, self.jobs - count), self.counts
        return Room(left, self.why) if counts is None else Room.counted(left, lambda more: counts(count + more))


def limit_words(words: str) -> str | None:
    """Slurm's name of the submit limit by which a job was refused; None where it was refused for another reason."""
    named = _SUBMIT_LIMIT.search(words)
    if named:
        return named[0]
    if "violates accounting/QOS policy" in words and not _OTHER_LIMIT.search(words):
        return "Slurm's accounting or QOS policy"
    return None


# --- what Slurm prints ------------------------------------------------------------------------------
def table(text: str) -> list[dict[str, str]]:
    """Rows of `sacctmgr -P show` with its heading, by column."""
    lines = [line for line in text.split("\n") if line]
    names = lines[0].split("|") if lines else []
    return [dict(zip(names, line.split("|"), strict=False)) for line in lines[1:]]


def pairs(text: str) -> dict[str, str]:
    """`Key=Value` words of one line of `scontrol -o show`; a value with spaces is cut."""
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def config_value(config: str, name: str) -> str:
    """A value of `scontrol show config`, or nothing."""
    match = re.search(rf"^{name}\s*=\s*(.*?)\s*$", config, re.MULTILINE)
    return match[1] if match else ""


def max_tasks(config: str) -> int | None:
    """The most tasks of one array: MaxArraySize less one (indexes stay below it), and max_array_tasks."""
    found = [int(size) - 1] if (size := config_value(config, "MaxArraySize")).isdigit() and int(size) > 1 else []
    asked = re.search(r"(?:^|,)max_array_tasks=(\d+)", config_value(config, "SchedulerParameters"))
    found += [int(asked[1])] if asked and int(asked[1]) > 0 else []
    return min(found, default=None)


def enforced(config: str) -> bool:
    """Whether this cluster holds anybody to limits at all."""
    return bool({"limits", "safe", "all"} & set(config_value(config, "AccountingStorageEnforce").split(",")))


def _number(row: Mapping[str, str], *names: str) -> int | None:
    text = next((row[name] for name in names if name in row), "")
    return int(text) if text.isdigit() else None


def chain(account: str, parents: Mapping[str, str]) -> list[str]:
    """An account and those above it."""
    found = []
    while account and account not in found:
        found.append(account)
        account = parents.get(account, "")
    return found


def below(account: str, parents: Mapping[str, str]) -> frozenset[str]:
    """An account and all below it."""
    return frozenset(name for name in {*parents, account} if account in chain(name, parents))


def _qos_limits(name: str, row: Mapping[str, str], asked: Asked, account: str, partition: str) -> dict[str, Limit]:
    where = {"partition": partition} if partition else {"qos": name}
    found: dict[str, Limit] = {}
    for kind, columns, own in (
        ("user", ("MaxSubmitPU", "MaxSubmitJobsPerUser", "MaxSubmitJobsPU"), {"user": asked.user}),
        ("account", ("MaxSubmitPA", "MaxSubmitJobsPerAccount", "MaxSubmitJobsPA"), {"accounts": frozenset({account})}),
        ("group", ("GrpSubmit", "GrpSubmitJobs"), {}),
    ):
        most = _number(row, *columns)
        if most is not None:
            title = {"user": "MaxSubmitJobsPerUser", "account": "MaxSubmitJobsPerAccount", "group": "GrpSubmitJobs"}
            text = f"{title[kind]}={most} of QOS {name}" + (f", the QOS of partition {partition}" if partition else "")
            found[kind] = Limit(text, most, **where, **own)  # type: ignore[arg-type]
    return found


def _mine(rows: Sequence[Mapping[str, str]], asked: Asked, account: str) -> Mapping[str, str]:
    """This user's association with an account; the one for the partition before the one for all."""
    own = [row for row in rows if row.get("User") == asked.user and row.get("Account") == account]
    exact = [row for row in own if row.get("Partition") and row.get("Partition") == asked.partition]
    return next(iter(exact or [row for row in own if not row.get("Partition")] or own), {})


def submit_limits(asked: Asked, config: str, users: str, accounts: str, qos: str, partition: str) -> SubmitLimits:
    """The limits that hold for jobs like `asked`, from what Slurm printed (texts may be empty: nothing known).

    Of a limit that partition QOS, QOS and association all give, the first that has one counts, as Slurm does it.
    """
    tasks = max_tasks(config)
    if not enforced(config):
        return SubmitLimits((), tasks)
    cluster = config_value(config, "ClusterName")
    rows = [row for row in table(users) if row.get("Cluster") in (cluster, "", None)]
    default = next((row.get("Def Acct", "") for row in rows if row.get("User") == asked.user), "")
    account = asked.account or default
    mine = _mine(rows, asked, account)
    parents = {row.get("Account", ""): row.get("ParentName", "") for row in table(accounts) if not row.get("User")}
    by_name = {row.get("Name", ""): row for row in table(qos)}
    allowed = mine.get("QOS", "").split(",")
    name = asked.qos or mine.get("Def QOS") or ("normal" if "normal" in allowed else allowed[0])
    of_job = _qos_limits(name, by_name.get(name, {}), asked, account, "")
    site = pairs(partition)
    other = site.get("QoS", "")
    of_partition = {} if other in ("", "N/A") else _qos_limits(other, by_name.get(other, {}), asked, account,
                                                               site.get("PartitionName", ""))
    over = "OverPartQOS" in by_name.get(name, {}).get("Flags", "")
    first = {**of_partition, **of_job} if over else {**of_job, **of_partition}
    return SubmitLimits((*first.values(), *_assoc_limits(asked, account, mine, accounts, parents, first)), tasks)


def _assoc_limits(asked: Asked, account: str, mine: Mapping[str, str], accounts: str, parents: Mapping[str, str],
                  first: Mapping[str, Limit]) -> Iterable[Limit]:
    most = _number(mine, "MaxSubmit", "MaxSubmitJobs")
    if most is not None and "user" not in first:
        yield Limit(f"MaxSubmitJobs={most} of {asked.user} in account {account}", most, asked.user,
                    frozenset({account}))
    if "group" in first:
        return
    most = _number(mine, "GrpSubmit", "GrpSubmitJobs")
    if most is not None:
        yield Limit(f"GrpSubmitJobs={most} of {asked.user} in account {account}", most, asked.user,
                    frozenset({account}))
    by_account = {row.get("Account", ""): row for row in table(accounts) if not row.get("User")}
    for name in chain(account, parents):
        most = _number(by_account.get(name, {}), "GrpSubmit", "GrpSubmitJobs")
        if most is not None:
            yield Limit(f"GrpSubmitJobs={most} of account {name}", most, accounts=below(name, parents))


def room(limits: SubmitLimits, jobs: Sequence[Queued]) -> Room:
    """How many more jobs fit under the tightest limit."""
    found = Room()
    for limit in limits.limits:
        count = sum(1 for job in jobs if limit.counts(job))
        found = found.least(Room.counted(max(0, limit.most - count), partial(_counted, limit.name, count)))
    return found


def _counted(name: str, count: int, more: int) -> str:
    return f"{name}; {count + more} count now"


def parse_queued(text: str) -> list[Queued]:
    """Lines of `squeue -h -r -o %u|%a|%q|%P`."""
    return [Queued(*fields) for line in text.split("\n") if len(fields := line.strip().split("|")) == 4]
