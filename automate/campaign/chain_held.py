"""What a chain holds back for room: which games wait for which answers, kept for the small job that hands them in.

Never hands in games whose answers nobody has handed in yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from automate.campaign.chain_report import Wanted
from automate.campaign.plans import StoredPlan
from automate.campaign.state import CampaignState
from automate.campaign.waiting import never_submitted
from automate.workspace import Workspace

Maker = tuple[str, int]
"""A batch that generates answers: its plan and its number."""
Needs = Mapping[int, Sequence[Maker]]
"""Number of a judging batch -> the batches whose answers it needs."""
NO_JOB = "their answers have no job yet"


@dataclass(frozen=True)
class Chain:
    """What is to be known of a judging plan that is part of a chain. `last`: only its report is left to hand in."""

    needs: Needs
    report: Wanted
    last: bool = False

    def as_data(self) -> dict[str, object]:
        """Its JSON form."""
        return {"needs": {str(number): [list(maker) for maker in makers] for number, makers in self.needs.items()},
                "report": asdict(self.report), "last": self.last}

    @classmethod
    def of_data(cls, data: Mapping[str, object]) -> Chain:
        """From its JSON form. Raises TypeError, ValueError, KeyError or AttributeError where it is none."""
        needs, report = data["needs"], data["report"]
        if not isinstance(needs, dict) or not isinstance(report, dict):
            raise TypeError("chain")
        return cls({int(number): tuple((str(plan), int(batch)) for plan, batch in makers)
                    for number, makers in needs.items()},
                   Wanted(**{**report, "models": tuple(report["models"])}), bool(data.get("last")))


def coming(workspace: Workspace, state: CampaignState, plans: Sequence[StoredPlan]) -> set[Maker]:
    """Batches of answers that nobody has handed in yet, and that are to be."""
    return {(stored.plan.id, number) for stored in plans if stored.plan.kind == "generate"
            for number in never_submitted(workspace, state, stored, plans)}


def sort_out(state: CampaignState, numbers: Iterable[int], needs: Needs,
             absent: Collection[Maker]) -> tuple[list[int], dict[int, str], list[int]]:
    """(batches that start at once, the jobs that each of others waits for, those kept back).

    `absent`: batches of answers without a job; games that need one are kept back.
    """
    views = {(view.stored.plan.id, view.batch.number): view for view in state.batches if view.kind == "generate"}
    now: list[int] = []
    after: dict[int, str] = {}
    held: list[int] = []
    for number in numbers:
        makers = needs.get(number, ())
        jobs = [view.job for maker in makers if (view := views.get(maker)) and view.may_act and view.job]
        if any(maker in absent for maker in makers):
            held.append(number)
        elif jobs:
            after[number] = ",".join(jobs)
        else:
            now.append(number)
    return now, after, held
