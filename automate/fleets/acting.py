"""Does what was decided for one group: hands jobs over, cancels, asks servers to end.

Never decides, and never acts without the control claim, which the caller holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from automate.cluster.base import Cluster
from automate.cluster.submit import Submission
from automate.errors import SubmitError
from automate.fleet_places import FleetPlaces
from automate.fleets.jobs import submit_workers
from automate.fleets.scaling import Decision
from automate.serving.fleet.records import FleetSpec, Group, Wish
from automate.serving.fleet.registry import read_wish, retire, write_wish


@dataclass
class Scaled:
    """What a change of the number of servers came to. `left_to`: who does it, where another is in control.

    `refused`: (group, how many servers, the cluster's words) of what was not accepted; the controller asks again.
    """

    submitted: list[Submission] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    refused: list[tuple[int, int, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left_to: str | None = None


def wish_for(places: FleetPlaces, wanted: dict[int, int], dropped: Sequence[str] = ()) -> Wish:
    """Write down how many are wanted of some groups, and which jobs' ends that takes account of; unless it says so."""
    old = read_wish(places)
    new = replace(old, wanted={**old.wanted, **wanted},
                  dropped=(*old.dropped, *(job for job in dropped if job not in old.dropped)))
    if new != old:
        new = replace(new, changed=time.time())
        write_wish(places, new)
    return new


def act(places: FleetPlaces, spec: FleetSpec, cluster: Cluster, group: Group, decision: Decision, *, by: str,
        done: Scaled, exclude: str | None = None) -> None:
    """Do it, and add to `done` what came of it. Raises ConfigError where the fleet has been made anew."""
    wish_for(places, {group.number: decision.wanted}, decision.cancel)
    for worker in decision.retire:
        retire(places, worker)
        done.retired.append(worker)
    if decision.cancel:
        done.problems += cluster.cancel(list(decision.cancel))
        done.cancelled += decision.cancel
    if decision.ask:
        _ask(places, spec, cluster, group, decision.ask, by, done, exclude)


def _ask(places: FleetPlaces, spec: FleetSpec, cluster: Cluster, group: Group, count: int, by: str, done: Scaled,
         exclude: str | None) -> None:
    try:
        submission = submit_workers(places, spec, cluster, group, count, by=by, exclude=exclude)
    except SubmitError as error:
        done.refused.append((group.number, count, error.what))
        return
    done.submitted.append(submission)
    left = count - len(submission.tasks)
    if left:
        done.refused.append((group.number, left, "a limit of the cluster on submitted jobs"))
