"""Asks Slurm what a cluster is like: limits, partitions, accounts, nodes, and who this user is there.

Never raises for a command that is missing or fails: nothing is known then."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterable

from automate.cluster.commands import have, slurm
from automate.cluster.limits import (
    Asked,
    Queued,
    SubmitLimits,
    config_value,
    enforced,
    max_tasks,
    pairs,
    parse_queued,
    submit_limits,
    table,
)
from automate.errors import ClusterError

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@$-]{0,63}")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_UNUSABLE = ("down", "drain", "drng", "fail", "maint", "unk", "inval", "boot", "power")


def me() -> str:
    """This user's login name, or number where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def known_users(names: Iterable[str]) -> list[str]:
    """Names that can be given to squeue, sorted, each once; others are left out."""
    return sorted({name for name in names if _USER.fullmatch(name)})


def _ask(*arguments: str) -> str:
    """What a command printed; nothing where it is missing, fails or doesn't answer."""
    if not have(arguments[0]):
        return ""
    try:
        said = slurm(arguments)
    except ClusterError:
        return ""
    return said.out if said.status == 0 else ""


def ask(asked: Asked) -> SubmitLimits:
    """Ask Slurm once for each thing. Without sacctmgr or accounting no limit is known."""
    config = _ask("scontrol", "show", "config")
    if not enforced(config):
        return SubmitLimits((), max_tasks(config))
    cluster = config_value(config, "ClusterName")
    users = _ask("sacctmgr", "-P", "show", "user", "where", f"name={asked.user}", "withassoc",
                 "format=user,defaultaccount,cluster,account,partition,qos,defaultqos,maxsubmitjobs,grpsubmitjobs")
    accounts = _ask("sacctmgr", "-P", "show", "assoc", "where", "user=", f"cluster={cluster}",
                    "format=account,user,parentname,grpsubmitjobs")
    qos = _ask("sacctmgr", "-P", "show", "qos",
               "format=name,maxsubmitjobsperuser,maxsubmitjobsperaccount,grpsubmitjobs,flags")
    return submit_limits(asked, config, users, accounts, qos, partition_line(asked.partition))


def partition_line(name: str | None) -> str:
    """`scontrol -o show partition` of a partition, or of the default one; nothing where it can't be asked."""
    text = _ask("scontrol", "-o", "show", "partition", *([name] if name else []))
    if name:
        return text
    return next((line for line in text.split("\n") if pairs(line).get("Default") == "YES"), "")


def queued(limits: SubmitLimits, user: str) -> list[Queued]:
    """The jobs that count now; of all users only where a limit is shared. Raises ClusterError."""
    if not limits.limits:
        return []
    whose = [] if limits.everybody else ["-u", user]
    said = slurm(["squeue", "-h", "-r", "-t", "PENDING,RUNNING,SUSPENDED,CONFIGURING", *whose, "-o", "%u|%a|%q|%P"])
    if said.status != 0:
        raise ClusterError(f"squeue failed: {said.words}")
    return parse_queued(said.out)


def is_node(name: object) -> bool:
    """Whether a text can be one node's name."""
    return isinstance(name, str) and _NODE.fullmatch(name) is not None


def usable_nodes(partition: str | None) -> set[str] | None:
    """Nodes of a partition (the default one: None) that are not down or drained; None where nobody can say."""
    if partition is None:
        partition = pairs(partition_line(None)).get("PartitionName")
    text = _ask("sinfo", "-h", "-N", *(["-p", partition] if partition else []), "-o", "%N|%t")
    found = [line.strip().split("|") for line in text.split("\n") if "|" in line]
    names = {name for name, state in found if is_node(name) and not state.lower().startswith(_UNUSABLE)}
    return names if found else None


def expand(hosts: str | None) -> set[str]:
    """The nodes of a list such as n[1-3],m7."""
    if not hosts:
        return set()
    if "[" not in hosts:
        return set(hosts.split(","))
    return set(_ask("scontrol", "show", "hostnames", hosts).split())


def partitions() -> list[str] | None:
    """Names of all partitions that this user sees; None where nobody can say."""
    found = [line.strip() for line in _ask("sinfo", "-h", "-a", "-o", "%R").split("\n") if line.strip()]
    return sorted(set(found)) or None


def accounts_and_qos(user: str) -> tuple[set[str], set[str]] | None:
    """The accounts and the QOS that a user has on this cluster; None where there is no accounting to ask."""
    config = _ask("scontrol", "show", "config")
    text = _ask("sacctmgr", "-P", "show", "user", "where", f"name={user}", "withassoc", "format=cluster,account,qos")
    rows = [row for row in table(text) if row.get("Cluster") in (config_value(config, "ClusterName"), "")]
    if not rows:
        return None
    return ({row["Account"] for row in rows if row.get("Account")},
            {name for row in rows for name in row.get("QOS", "").split(",") if name})
