"""The small job of a chain: answers first, games after their answers, the report after the last game; each once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from automate.campaign import refilling
from automate.campaign.chain_held import Chain, sort_out
from automate.campaign.chain_report import Wanted
from automate.campaign.refill import remember
from automate.campaign.state import BatchView, CampaignState
from automate.cluster.queue import JobState, JobStatus
from automate.cluster.submit import SubmissionBook
from automate.errors import SubmitError
from automate.workspace import Workspace
from tests.unit.test_generating import answers_plan, both, workspace_at
from tests.unit.test_handing import REQUEST, FakeCluster, planned, state_of

WANTED = Wanted(("m1", "m2"), "base", 3)


@dataclass
class Queue(FakeCluster):
    """A queue that takes all but reports while `closed`; jobs run until they are put into `ended`."""

    ended: set[str] = field(default_factory=set)
    closed: bool = False

    def submit(self, script: Path, name: str, indexes: Sequence[int], parallel: int | None,
               after: str | None = None, exclude: str | None = None) -> str:
        if self.closed and name.startswith("arena-report"):
            raise SubmitError(self.words)
        return f"local-{super().submit(script, name, indexes, parallel, after, exclude)}"

    def took_now(self) -> list[tuple[str, str | None]]:
        """Kind and number of what was taken since the last call, with what it waits for."""
        found = [(name.rpartition("-")[0].replace("array", f"batch-{indexes[0]}" if indexes else ""), after)
                 for name, indexes, _, after in self.took[self.seen:]]
        self.seen = len(self.took)
        return found

    seen: int = 0


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return workspace_at(tmp_path, "m1", "m2", limits={"max_submitted": 1, "refill": "job"})


@pytest.fixture
def queue(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Two batches of answers and two of games that need one each, all of which wait for room."""
    answers, games, queue = answers_plan(workspace, plan_id="20260101_000000"), planned(
        workspace, 2, "20260101_000100"), Queue()

    def look(_: Workspace) -> CampaignState:
        views = []
        for stored in (answers, games):
            for batch in stored.plan.batches:
                jobs = [job for sub in SubmissionBook(workspace.submissions).all() if sub.plan == stored.plan.id
                        and sub.job and (job := sub.job_of(batch.number))]
                over = JobState.COMPLETED if jobs and jobs[-1].partition("_")[0] in queue.ended else JobState.RUNNING
                status = JobStatus(jobs[-1], over, "squeue") if jobs else None
                views.append(BatchView(stored, batch, jobs[-1] if jobs else None, status, None, len(jobs)))
        return CampaignState(tuple(views), tuple(SubmissionBook(workspace.submissions).all()))

    for module in ("refilling", "chain_report"):
        monkeypatch.setattr(f"automate.campaign.{module}.look", look)
    monkeypatch.setattr(refilling, "SlurmCluster", lambda: queue)
    monkeypatch.setattr(refilling, "postpone", lambda *_: None)
    remember(workspace, answers, REQUEST)
    needs = {number: ((answers.plan.id, number),) for number in (1, 2)}
    remember(workspace, games, REQUEST, Chain(needs, WANTED))
    return queue


def again(workspace: Workspace, queue: Queue, *ended: str) -> list[tuple[str, str | None]]:
    """What the small job hands in after these jobs have ended."""
    queue.ended |= {f"local-{job}" for job in ended}
    assert refilling.run(workspace, lambda _: None, {}) == 0
    return queue.took_now()


def test_a_chain_carries_itself_to_its_report(workspace: Workspace, queue: Queue) -> None:
    assert again(workspace, queue) == [("answer-batch-1", None), ("judge-refill", None)]
    assert again(workspace, queue, "101") == [("answer-batch-2", None), ("judge-refill", None)]
    assert again(workspace, queue, "103") == [("judge-batch-1", None), ("judge-refill", None)]
    assert again(workspace, queue, "105") == [("judge-batch-2", None), ("arena-report", "local-107")]
    assert not list(workspace.submissions.glob("*.waiting"))
    assert again(workspace, queue) == []
    script = workspace.report_script.read_text()
    assert "--baseline base" in script and "--limit-questions 3" in script and "m2" in script


def test_games_are_handed_in_behind_answers_that_have_a_job(workspace: Workspace, queue: Queue) -> None:
    workspace.settings.limits.__dict__["max_submitted"] = None
    for path in workspace.plans.glob("*.json"):
        path.write_text(re.sub(r'"max_submitted": *1', '"max_submitted": null', path.read_text()))
    found = again(workspace, queue)
    assert [name for name, _ in found] == ["answer-batch-1", "judge-batch-1", "judge-batch-2", "arena-report"]
    assert [after for _, after in found] == [None, "local-101_1", "local-101_2", "local-102,local-103"]


def test_a_report_that_has_no_room_is_handed_in_later(workspace: Workspace, queue: Queue) -> None:
    queue.closed = True
    for ended in ("100", "101", "103", "105"):
        again(workspace, queue, ended)
    assert len(list(workspace.submissions.glob("*.waiting"))) == 1
    queue.closed = False
    assert again(workspace, queue)[0][0] == "arena-report"
    assert not list(workspace.submissions.glob("*.waiting"))


def test_of_a_cancelled_chain_nothing_is_handed_in(workspace: Workspace, queue: Queue) -> None:
    again(workspace, queue)
    for plan in ("20260101_000000", "20260101_000100"):
        workspace.stopped(plan).touch()
    assert again(workspace, queue, "101") == []
    assert not list(workspace.submissions.glob("*.waiting"))


def test_it_ends_where_no_room_can_come(workspace: Workspace, queue: Queue) -> None:
    workspace.waiting("20260101_000000").unlink()  # nobody hands the answers in
    said = list[str]()
    assert refilling.run(workspace, said.append, {}) == 0
    assert queue.took == [] and "given up" in said[-1]


def test_what_is_kept_of_a_chain_is_read_back() -> None:
    chain = Chain({1: (("p", 2), ("p", 3)), 4: ()}, WANTED, last=True)
    assert Chain.of_data(chain.as_data()) == chain
    broken: tuple[dict[str, object], ...] = (
        {}, {"needs": [], "report": {}}, {"needs": {"x": []}, "report": {"models": []}},
        {"needs": {"1": [["p"]]}, "report": {"models": []}}, {"needs": {}, "report": {"models": [], "a": 1}})
    for bad in broken:
        with pytest.raises((TypeError, ValueError, KeyError)):
            Chain.of_data(bad)


def test_games_whose_answers_ended_start_at_once(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path)
    games, answers = planned(workspace, 4), answers_plan(workspace, 3)
    plan = answers.plan.id
    state = both(state_of(workspace, games), state_of(workspace, answers, b1=JobState.FAILED, b2=JobState.RUNNING),
                 workspace)
    needs = {1: ((plan, 1),), 2: ((plan, 1), (plan, 2)), 3: ((plan, 2), (plan, 3))}
    assert sort_out(state, [1, 2, 3, 4], needs, {(plan, 3)}) == ([1, 4], {2: "9_2"}, [3])
