"""What a site says of itself: controller, accounting, partitions, accounts and QOS.

Only asks; what can't be asked is None or a ClusterError, never a guess."""

from __future__ import annotations

import getpass
import re
from collections.abc import Sequence
from dataclasses import dataclass

from automate.cluster.commands import Said, slurm
from automate.durations import seconds_of
from automate.errors import ClusterError

ASK_TIMEOUT = 30.0


@dataclass(frozen=True)
class Partition:
    """A partition as `scontrol` shows it. `max_time` in seconds (infinite: no limit); None: everybody may use it."""

    name: str
    state: str
    default: bool
    max_time: float
    nodes: int
    allow_accounts: frozenset[str] | None
    deny_accounts: frozenset[str]
    allow_qos: frozenset[str] | None
    deny_qos: frozenset[str]


@dataclass(frozen=True)
class Association:
    """An account that this user may charge, on any partition where `partition` is empty."""

    account: str
    partition: str
    qos: frozenset[str]


def _ask(arguments: Sequence[str]) -> Said:
    said = slurm(arguments, timeout=ASK_TIMEOUT)
    if said.status != 0:
        raise ClusterError(f"{arguments[0]}: {said.words}")
    return said


def version() -> str:
    """Slurm's own name and version. Raises ClusterError."""
    return _ask(["sbatch", "--version"]).out.strip()


def ping() -> tuple[bool, str]:
    """Whether a controller answers, and what `scontrol ping` said. Raises ClusterError where it can't be run."""
    said = slurm(["scontrol", "ping"], timeout=ASK_TIMEOUT)
    return re.search(r"\bis UP\b", said.out) is not None, said.words


def accounting() -> str | None:
    """Why accounting gives no answers, or None where it does. Raises ClusterError where it can't be asked."""
    said = slurm(["sacct", "-X", "-n", "-P", "-S", "now", "-o", "JobID"], timeout=ASK_TIMEOUT)
    return None if said.status == 0 else said.words


def _names(text: str) -> frozenset[str]:
    return frozenset(name for name in text.split(",") if name and name not in ("(null)", "N/A"))


def _allowed(text: str) -> frozenset[str] | None:
    return None if text in ("", "ALL", "(null)") else _names(text)


def parse_partitions(text: str) -> dict[str, Partition]:
    """Lines of `scontrol show partition -o`, by name."""
    found = {}
    for line in text.split("\n"):
        keys = dict(re.findall(r"(?:^|\s)(\w+)=(\S*)", line))
        name = keys.get("PartitionName")
        if name:
            nodes, limit = keys.get("TotalNodes", ""), keys.get("MaxTime", "")
            found[name] = Partition(
                name, keys.get("State", ""), keys.get("Default") == "YES",
                seconds_of(limit), int(nodes) if nodes.isdigit() else 0,
                _allowed(keys.get("AllowAccounts", "")), _names(keys.get("DenyAccounts", "")),
                _allowed(keys.get("AllowQos", "")), _names(keys.get("DenyQos", "")))
    return found


def partitions() -> dict[str, Partition]:
    """All partitions that this user can see. Raises ClusterError."""
    return parse_partitions(_ask(["scontrol", "show", "partition", "-o"]).out)


def node_states(partition: str) -> dict[str, int]:
    """How many nodes of a partition are in which state. Raises ClusterError."""
    counts: dict[str, int] = {}
    for line in _ask(["sinfo", "-h", "-p", partition, "-o", "%T|%D"]).out.split("\n"):
        state, _, number = line.strip().partition("|")
        if number.isdigit():
            counts[state] = counts.get(state, 0) + int(number)
    return counts


def parse_associations(text: str) -> list[Association]:
    """Lines of `sacctmgr -n -P show assoc format=account,partition,qos`."""
    rows = [line.strip().split("|") for line in text.split("\n") if line.strip()]
    return [Association(row[0], row[1], _names(row[2])) for row in rows if len(row) == 3 and row[0]]


def associations() -> list[Association]:
    """What this user may charge; empty where the site keeps no accounts. Raises ClusterError."""
    me = f"user={getpass.getuser()}"
    return parse_associations(_ask(["sacctmgr", "-n", "-P", "show", "assoc", me, "format=account,partition,qos"]).out)


def in_its_words() -> str:
    """What Slurm's commands print of this user's jobs and of the partitions, for a report; errors are part of it."""
    parts = []
    for command in (["scontrol", "ping"], ["squeue", "--me", "-r", "-t", "all"],
                    ["sacct", "-X", "-S", "now-7days", "-o", "JobID,JobName%40,State,ExitCode,Elapsed,NodeList"],
                    ["sinfo", "-o", "%P %a %l %D %T %c %m %G"]):
        try:
            said = slurm(command, timeout=ASK_TIMEOUT)
            text = said.out + said.err
        except ClusterError as error:
            text = f"{error}\n"
        parts.append(f"$ {' '.join(command)}\n{text}")
    return "\n".join(parts)
