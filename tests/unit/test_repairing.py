"""A repair's plan: who is generated, judged, mended, left alone; and which final nulls are asked again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from automate.arena.batches import Batch, Plan, PlanKind
from automate.arena.context import load_answers, load_match
from automate.arena.ledger import ModelLedger
from automate.campaign.plans import StoredPlan
from automate.campaign.repairing import Repair, at_work, mend, plan_repair, with_attempts
from automate.campaign.state import BatchView, CampaignState
from automate.cluster.queue import JobState, JobStatus
from automate.journal import fresh_name
from automate.workspace import Workspace
from tests.unit.audit_support import read_rows, write_rows
from tests.unit.support import CATEGORIES, make_settings, record_of, write_lines

TAG = "base"
UIDS = [f"q{number}" for number in range(4)]
NOBODY = CampaignState((), ())


def write_answers(workspace: Workspace, model: str, uids: Sequence[str] = UIDS, asked: str = "prompt") -> Path:
    return write_lines(workspace.answer_file(model), [
        {"uid": uid, "model": model, "messages": [{"role": "user", "content": f"{asked} {uid}"},
         {"role": "assistant", "content": {"answer": f"{model} on {uid}"}}]} for uid in uids])


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Two models, a baseline and four questions."""
    settings = make_settings(bench="arena-hard-v2.0", baseline=TAG, judge={"kind": "rehearsal", "name": "j"},
                             limits={"claim_stale": 1, "attempts": 2})
    found = Workspace(tmp_path, settings, TAG)
    write_lines(found.questions, [{"uid": uid, "category": CATEGORIES[place % 2], "prompt": f"prompt {uid}"}
                                  for place, uid in enumerate(UIDS)])
    for model in (TAG, "m", "n"):
        write_answers(found, model)
    found.models_file.write_text("m\nn\n")
    return found


def play(workspace: Workspace, model: str, outcomes: Sequence[str] = ("verdict",), uids: Sequence[str] = UIDS) -> None:
    """Write records of what is due, each game one after the other with these outcomes."""
    match, answers = load_match(workspace), load_answers(workspace, model)
    assert answers is not None
    ledger = ModelLedger(workspace, model, match, answers, workspace.settings.limits.attempts)
    ledger.open(fresh_name("played"))
    for game in ledger.due(set(uids)):
        for outcome in outcomes:
            ledger.add(game, {**record_of(game, outcome), "reason": "so it was", "seconds": 1.0})
    ledger.close()


def running(workspace: Workspace, *models: str, kind: PlanKind = "judge", **settings: Any) -> CampaignState:
    """A batch of these models that runs."""
    batch = Batch(7, models, 8)
    used = {**workspace.settings.model_dump(mode="json"), **settings}
    stored = StoredPlan(Plan("20260101_000000", "tag", TAG, (batch,), None, kind), (), used)
    view = BatchView(stored, batch, "1", JobStatus("1", JobState.RUNNING, "squeue"), None, 1)
    return CampaignState((view,), ())


def plan(workspace: Workspace, state: CampaignState = NOBODY, **options: Any) -> Repair:
    return plan_repair(workspace, state=state, **options)


def test_of_a_complete_campaign_nothing_is_repaired(workspace: Workspace) -> None:
    play(workspace, "m")
    play(workspace, "n")
    assert plan(workspace).nothing


def test_exactly_what_lacks_is_planned_answers_before_games(workspace: Workspace) -> None:
    play(workspace, "n", uids=UIDS[:3])
    write_answers(workspace, "m", UIDS[:1])
    workspace.models_file.write_text("m\nn\nnobody\n")
    found = plan(workspace)
    assert (found.answers, found.questions) == (("m", "nobody"), {"m": 3, "nobody": 4})
    assert (found.judgments, found.later) == (("n",), ("m", "nobody"))
    assert found.games == {"m": 8, "n": 2, "nobody": 8}
    assert (found.mend_answers, found.mend_judgments) == ((), ())


def test_models_can_be_named(workspace: Workspace) -> None:
    assert plan_repair(workspace, ["n"], state=NOBODY).judgments == ("n",)
    assert plan_repair(workspace, ["n"], state=NOBODY, limit_questions=1).games == {"n": 2}


def test_without_the_baselines_answers_they_come_first_and_every_game_later(workspace: Workspace) -> None:
    workspace.answer_file(TAG).unlink()
    found = plan(workspace)
    assert (found.answers, found.judgments, found.later) == ((TAG,), (), ("m", "n"))
    assert found.games == {"m": 8, "n": 8}


def test_stale_answers_of_a_baseline_are_generated_first(workspace: Workspace) -> None:
    write_answers(workspace, TAG, asked="older")
    found = plan(workspace)
    assert (found.answers, found.later) == ((TAG,), ("m", "n"))


def test_what_a_batch_is_at_work_on_is_left_alone(workspace: Workspace) -> None:
    write_rows(workspace.rows_file("m", TAG, TAG), [{"uid": "q0", "games": [None, None]}])
    assert plan(workspace).mend_judgments == ("m",)
    found = plan(workspace, running(workspace, "m"))
    assert (found.judgments, found.mend_judgments, list(found.busy)) == (("n",), (), ["m"])
    found = plan(workspace, running(workspace, "m", judge={"name": "another"}))
    assert (found.judgments, list(found.busy)) == (("m", "n"), [])


def test_answers_in_the_making_are_left_alone_and_their_games_too(workspace: Workspace) -> None:
    write_answers(workspace, "m", UIDS[:1])
    state = running(workspace, "m", kind="generate", judge={"name": "of no matter"})
    found = plan(workspace, state)
    assert (found.answers, found.judgments, found.later) == ((), ("n",), ())
    assert list(at_work(workspace, state)) == ["m"]
    assert at_work(workspace, running(workspace, "m", kind="generate", bench="another")) == {}


def test_final_nulls_are_asked_again_only_where_it_is_wished(workspace: Workspace) -> None:
    play(workspace, "m", ("unparsed", "unparsed", "unparsed"), UIDS[:1])
    play(workspace, "m")
    play(workspace, "n")
    assert plan(workspace).nothing
    found = plan(workspace, nulls=True)
    assert (found.judgments, found.games, found.attempts) == (("m",), {"m": 2}, 4)
    again = with_attempts(workspace, found.attempts)
    assert again.settings.limits.attempts == 4
    play(again, "m", ("verdict",))
    assert plan(workspace, nulls=True).nothing


def test_what_is_too_long_stays_so(workspace: Workspace) -> None:
    play(workspace, "m", ("too_long", "too_long"))
    play(workspace, "n")
    assert plan(workspace, nulls=True).nothing
    assert plan(workspace, nulls=True).attempts is None


def test_attempts_are_never_fewer_than_the_settings_say(workspace: Workspace) -> None:
    assert with_attempts(workspace, None) is workspace
    assert with_attempts(workspace, 1) is workspace


def test_mending_brings_files_to_what_the_records_say_and_keeps_the_old_ones(workspace: Workspace) -> None:
    play(workspace, "m")
    play(workspace, "n")
    rows, answers = workspace.rows_file("m", TAG, TAG), workspace.answer_file("n")
    good = read_rows(rows)
    write_rows(rows, [*good[1:], good[1]], b"{torn")
    write_rows(answers, read_rows(answers), b'{"uid"')
    old = {rows.read_bytes(), answers.read_bytes()}
    found = plan(workspace)
    assert (found.mend_judgments, found.mend_answers, found.judgments) == (("m",), ("n",), ())
    notes = mend(workspace, found)
    assert len([note for note in notes if "the old file is" in note]) >= 2
    assert read_rows(rows) == good
    assert old <= {path.read_bytes() for path in workspace.superseded.rglob("*.jsonl")}
    assert plan(workspace).nothing


def test_nothing_is_mended_while_somebody_holds_the_claim(workspace: Workspace) -> None:
    from automate import claims

    play(workspace, "n")
    play(workspace, "m")
    rows = workspace.rows_file("m", TAG, TAG)
    write_rows(rows, read_rows(rows), b"{torn")
    write_rows(workspace.answer_file("n"), read_rows(workspace.answer_file("n")), b"{torn")
    before = rows.read_bytes()
    held = [claims.take(folder, stale=1) for folder in (workspace.claim("m"), workspace.answer_claim("n"))]
    notes = mend(workspace, plan(workspace))
    assert sum("can't be mended now: held by" in note for note in notes) == 2
    assert rows.read_bytes() == before
    for claim in held:
        claim.release()
    mend(workspace, plan(workspace))
    assert plan(workspace).nothing


def test_a_dry_run_says_by_reason_what_is_asked_again(workspace: Workspace) -> None:
    from rich.console import Console

    from automate.cli.views.status_text import print_repair

    play(workspace, "m", ("unparsed", "unparsed"), UIDS[:1])
    play(workspace, "m", ("too_long", "too_long"), UIDS[1:2])
    play(workspace, "m")
    play(workspace, "n", ("too_long", "too_long"))
    console = Console(record=True, width=200)
    found = plan(workspace, nulls=True)
    print_repair(console, found)
    assert found.judgments == ("m",)
    assert "m: 4 games: 4 asked again that ended without a label (2 too long, 2 unparsed)" in console.export_text()
    play(with_attempts(workspace, found.attempts), "m", ("verdict",), UIDS[:1])
    play(with_attempts(workspace, found.attempts), "m", ("too_long",), UIDS[1:2])
    assert plan(workspace, nulls=True).nothing


def test_where_only_given_up_answers_lack_nothing_is_promised(workspace: Workspace) -> None:
    from dataclasses import replace

    from rich.console import Console

    from automate.arena.audit import audit
    from automate.cli.views.status_text import print_totals

    play(workspace, "m", uids=UIDS[:3])
    play(workspace, "n")
    found = audit(workspace, ["m", "n"])
    assert found.to_do
    first = found.models[0]
    lost = replace(first, answers=replace(first.answers, done=3, failed={"refused": 1}),
                   games=replace(first.games, due=0, unanswered=2, causes={}))
    found = replace(found, models=(lost, found.models[1]))
    assert (found.to_do, found.complete) == (False, False)
    console = Console(record=True, width=200)
    print_totals(console, found, [], 0)
    text = console.export_text()
    assert "1 answer was given up" in text
    assert "repair --submit" not in text
