"""Why a job waits, in plain words: Slurm's reason codes, and the local queue's.

Never asks Slurm; a code that isn't known is shown as Slurm wrote it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """A wait in words, what to do about it (empty: nothing), and whether it ends without anybody's doing."""

    words: str
    advice: str = ""
    never: bool = False


_CANCEL = "'flock-hpc cancel', mend the settings, then submit again"
_RELEASE = "'scontrol release JOB' lets it go on"
_KNOWN: dict[str, Reason] = {
    "Priority": Reason("other jobs of the partition come first"),
    "Resources": Reason("next in line, waits for free nodes or GPUs"),
    "JobArrayTaskLimit": Reason("as many batches run at once as the campaign allows",
                                "limits.max_parallel decides how many"),
    "BeginTime": Reason("may not start before its begin time; a requeued job waits about two minutes"),
    "Dependency": Reason("waits for another job to end first"),
    "DependencyNeverSatisfied": Reason("waits for a job that can't end as it should", _CANCEL, True),
    "ReqNodeNotAvail": Reason("a node that it needs is down, drained or reserved",
                              "see slurm.exclude, slurm.constraint and 'sinfo -R'"),
    "NodeDown": Reason("a node that it needs is down"),
    "Reservation": Reason("waits for its reservation to begin"),
    "ReservationDeleted": Reason("its reservation was deleted", _CANCEL, True),
    "Licenses": Reason("waits for a licence"),
    "PartitionTimeLimit": Reason("asks for more time than the partition allows",
                                 f"lower slurm.time: {_CANCEL}", True),
    "PartitionNodeLimit": Reason("asks for more or fewer nodes than the partition allows, or its nodes are down",
                                 _CANCEL, True),
    "PartitionConfig": Reason("asks for what the partition can't give", _CANCEL, True),
    "PartitionInactive": Reason("the partition is switched off", "ask your administrators, or name another "
                                "slurm.partition", True),
    "PartitionDown": Reason("the partition is down", "it starts when the partition is up again", True),
    "AccountNotAllowed": Reason("the account may not use this partition", f"see slurm.account: {_CANCEL}", True),
    "AccountingPolicy": Reason("a limit of the account or QOS is reached"),
    "InvalidAccount": Reason("the account is not valid", f"see slurm.account: {_CANCEL}", True),
    "InvalidQOS": Reason("the QOS is not valid", f"see slurm.qos: {_CANCEL}", True),
    "QOSNotAllowed": Reason("the QOS may not be used with this account or partition",
                            f"see slurm.qos: {_CANCEL}", True),
    "BadConstraints": Reason("no node is like what it asks for", f"see slurm.constraint, slurm.gres, slurm.mem: "
                             f"{_CANCEL}", True),
    "JobHeldUser": Reason("held by its user", _RELEASE, True),
    "JobHeldAdmin": Reason("held by an administrator", "ask your administrators", True),
    "JobHoldMaxRequeue": Reason("held: requeued as often as Slurm allows", _RELEASE, True),
    "JobLaunchFailure": Reason("could not be started on its node; Slurm holds it", _RELEASE, True),
    "SystemFailure": Reason("Slurm, its file system or the network failed"),
    "Prolog": Reason("the node is being prepared"),
    "Cleaning": Reason("was requeued, and its last start is still being cleaned up"),
    "DeadLine": Reason("can't end before its deadline", _CANCEL, True),
    "MaxMemPerLimit": Reason("asks for more memory than one job may have", f"lower slurm.mem: {_CANCEL}", True),
    "SchedDefer": Reason("asked to start at once, but Slurm schedules later"),
    "FedJobLock": Reason("waits for the federation's clusters to agree"),
    "OutOfMemory": Reason("ran out of memory"),
    "TimeLimit": Reason("reached its time limit"),
    "NonZeroExitCode": Reason("ended with an error"),
    "NodeFailure": Reason("its node failed"),
    "the local runner ended before it was started": Reason("the local runner ended before it was started",
                                                           "'flock-hpc judge --submit' starts it anew"),
}
_SENTENCES: tuple[tuple[str, Reason], ...] = (
    (r"nodes required for job are down", Reason("nodes that it needs are down, drained or reserved for jobs that come "
                                                "first", "see 'sinfo -R'")),
    (r"launch failed requeued held", Reason("could not be started on its node; Slurm holds it", _RELEASE, True)),
    (r"requeued in held state", Reason("was requeued and is held", _RELEASE, True)),
    (r"reqnodenotavail", _KNOWN["ReqNodeNotAvail"]),
)
_FAMILY = re.compile(r"(QOS|Assoc|Max|Partition)(Grp|Max|Min)?(.+)")
_THINGS: tuple[tuple[str, str], ...] = (
    ("gres/gpu", "GPUs"), ("gres", "GPUs"), ("submitjob", "submitted jobs"), ("job", "running jobs"),
    ("cpu", "CPU cores"), ("memory", "memory"), ("mem", "memory"), ("nodelimit", "nodes"), ("node", "nodes"),
    ("wall", "run time"), ("timelimit", "run time"), ("time", "run time"), ("billing", "billed units"),
    ("energy", "energy"), ("license", "licences"), ("bb", "burst buffer space"),
    ("usagethreshold", "use"), ("resource", "resources"),
)
_SCOPES = (("peruser", "for each user"), ("peraccount", "for each account"), ("perjob", "for one job"),
           ("pernode", "for each node"))


def explain(reason: str) -> Reason:
    """A reason code (or Slurm's sentence) in words; an empty code is an empty reason."""
    code = reason.strip().strip("()")
    known = _KNOWN.get(code) or _KNOWN.get(re.split(r"[,\s]", code, maxsplit=1)[0])
    if known is not None or not code:
        return known or Reason("")
    for pattern, meaning in _SENTENCES:
        if re.search(pattern, code, re.IGNORECASE):
            return meaning
    return _family(code) or Reason(code)


def _family(code: str) -> Reason | None:
    """Limits of accounts (Assoc), QOS and partitions, by the parts of their names."""
    found = _FAMILY.fullmatch(code)
    if found is None:
        return None
    whose, kind, rest = found.groups()
    low = rest.lower()
    place, scope = next(((word, words) for word, words in _SCOPES if word in low), ("", ""))
    rest = low.replace(place, "")
    thing = next((words for word, words in _THINGS if word in rest), None)
    if thing is None:
        return None
    owner = {"QOS": "the QOS's", "Assoc": "the account's", "Partition": "the partition's"}.get(whose, "the")
    if "minutes" in low:
        return Reason(f"{owner} time budget for {thing} is used up", "ask whoever manages the project's budget")
    if kind == "Min":
        return Reason(f"asks for less than {owner} least of {thing}", _CANCEL, True)
    limit = " ".join(word for word in (f"{owner} limit of {thing}", scope, "is reached") if word)
    if scope in ("for one job", "for each node"):
        return Reason(f"asks for more than {owner} limit of {thing} {scope}", _CANCEL, True)
    return Reason(limit, "waits until others of the project end" if kind == "Grp" else "waits until jobs of yours end")
