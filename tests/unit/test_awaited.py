"""Games that answers which are due again make due: counted in the chain's plan, in a repair's, and told in results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from automate.campaign.awaited import Awaited
from automate.campaign.chain import Links, answers_first, link
from automate.campaign.chain_report import Wanted
from automate.campaign.chain_results import missing_lines
from automate.campaign.handing import Request, submit_claim
from automate.campaign.repairing import Repair, plan_repair
from automate.campaign.state import CampaignState
from automate.cluster.local.executor import LocalCluster
from automate.workspace import Workspace
from tests.unit.test_answering_candidates import make_model
from tests.unit.test_repairing import TAG, UIDS, play, workspace, write_answers

__all__ = ["workspace"]  # the fixture


def serve(workspace: Workspace, *models: str) -> None:
    """Give these models folders of their own."""
    given = {model: {"path": str(make_model(workspace.root / f"weights-{model}"))} for model in models}
    generate = workspace.settings.generate.model_validate({"kind": "vllm", "models": given})
    object.__setattr__(workspace, "settings", workspace.settings.model_copy(update={"generate": generate}))


def made_with(workspace: Workspace, model: str, weights: str, uids: list[str]) -> None:
    """Let rows of an answer file say with which weights they were made."""
    path = workspace.answer_file(model)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        if row["uid"] in uids:
            row["flock_hpc"] = {"weights": weights}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def give_up(workspace: Workspace, model: str, uid: str) -> None:
    """Write records of two questions asked in vain, and take the answer away."""
    from automate.arena.answering.candidates import candidate_of
    from automate.arena.answering.recorded import due_of
    from automate.arena.benchmark import read_questions

    weights = candidate_of(workspace, model)[0].weights
    question = next(one for one in read_questions(workspace.questions, workspace.settings.bench) if one.uid == uid)
    due = due_of(model, question, weights)
    folder = workspace.answer_journal(model)
    folder.mkdir(parents=True, exist_ok=True)
    record = {"v": 1, "uid": uid, "model": model, "key": due.key, "prompt_sha": due.prompt_sha, "weights": weights,
              "outcome": "too_long", "reason": "so it was"}
    (folder / "one.jsonl").write_text(2 * (json.dumps(record) + "\n"))
    path = workspace.answer_file(model)
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines() if json.loads(line)["uid"] != uid))


def chained(workspace: Workspace, *models: str) -> Links:
    cluster, request = LocalCluster(workspace.local_queue, workspace.root), Request(models)
    claim = submit_claim(workspace)
    try:
        return link(workspace, cluster, request, answers_first(workspace, cluster, request))
    finally:
        claim.release()


def games(links: Links) -> dict[tuple[str, ...], int]:
    return {batch.models: batch.games for batch in links.stored.plan.batches} if links.stored else {}


def repaired(workspace: Workspace) -> Repair:
    return plan_repair(workspace, state=CampaignState((), ()))


def test_games_of_answers_that_go_are_due_though_they_were_played(workspace: Workspace) -> None:
    serve(workspace, TAG, "m", "n")
    play(workspace, "m")
    play(workspace, "n", uids=UIDS[:3])
    made_with(workspace, "m", "of yesterday", UIDS[1:])
    links = chained(workspace, "m", "n")
    assert games(links) == {("n",): 2, ("m",): 6}
    assert links.complete == []
    assert len(links.waits) == 1
    found = repaired(workspace)
    assert (found.answers, found.judgments, found.later) == (("m",), ("n",), ("m",))
    assert found.games == {"m": 6, "n": 2}


def test_a_baselines_answers_make_the_games_of_all_models_due(workspace: Workspace) -> None:
    serve(workspace, TAG, "m", "n")
    play(workspace, "m")
    play(workspace, "n")
    made_with(workspace, TAG, "of yesterday", UIDS[:2])
    links = chained(workspace, "m", "n")
    assert sum(games(links).values()) == 8
    assert all(waits for waits in links.waits.values())
    found = repaired(workspace)
    assert (found.answers, found.later, found.games) == ((TAG,), ("m", "n"), {"m": 4, "n": 4})


def test_what_was_asked_in_vain_makes_no_game_due(workspace: Workspace) -> None:
    serve(workspace, TAG, "m", "n")
    give_up(workspace, "m", "q3")
    play(workspace, "n")
    play(workspace, "m", uids=UIDS[:2])
    found = repaired(workspace)
    assert (found.answers, found.judgments, found.games) == ((), ("m",), {"m": 2})
    assert games(chained(workspace, "m", "n")) == {("m",): 2}
    play(workspace, "m")
    assert repaired(workspace).nothing
    links = chained(workspace, "m", "n")
    assert (links.stored, links.complete) == (None, ["m", "n"])
    assert links.lost == {"m": "1 too_long"}
    give_up(workspace, "m", "q3")
    made_with(workspace, "m", "of yesterday", ["q0"])
    assert games(chained(workspace, "m", "n")) == {("m",): 2}


def test_without_a_baseline_every_question_counts_but_those_asked_in_vain(workspace: Workspace) -> None:
    serve(workspace, TAG, "m", "n")
    give_up(workspace, "m", "q3")
    workspace.answer_file(TAG).unlink()
    assert sum(games(chained(workspace, "m", "n")).values()) == 6 + 8


def test_a_score_of_answers_that_are_gone_is_told(workspace: Workspace) -> None:
    serve(workspace, TAG, "m", "n")
    play(workspace, "m")
    play(workspace, "n")
    assert missing_lines(workspace, Wanted(("m", "n"))) == []
    made_with(workspace, "m", "of yesterday", UIDS[1:])
    (line,) = missing_lines(workspace, Wanted(("m", "n")))
    assert line.startswith("m: 6 of 8 games were judged with answers that are due again")
    made_with(workspace, "m", "of yesterday", UIDS)
    (line,) = missing_lines(workspace, Wanted(("m", "n")))
    assert line.startswith("m: 8 of 8 games were judged with answers that are due again")
    assert "its score" in line


def test_a_score_of_a_model_whose_answers_left_is_told(workspace: Workspace) -> None:
    """So it is when a job took answers of other weights out of the file, and its server then failed."""
    serve(workspace, TAG, "m", "n")
    play(workspace, "m")
    play(workspace, "n")
    record = {"v": 1, "uid": UIDS[0], "model": "m", "outcome": "answer", "answer": "a", "weights": "of yesterday",
              "prompt_sha": "x"}
    folder = workspace.answer_journal("m")
    folder.mkdir(parents=True)
    (folder / "one.jsonl").write_text(json.dumps(record) + "\n")
    workspace.answer_file("m").unlink()
    assert missing_lines(workspace, Wanted(("m", "n"))) == [
        "m: no answers, so it was not judged; its score in the table rests on earlier answers"]


def test_games_that_do_not_count_any_more_are_told(workspace: Workspace) -> None:
    serve(workspace, TAG, "m", "n")
    play(workspace, "m")
    play(workspace, "n")
    path = workspace.answer_file("n")
    path.write_text(path.read_text().replace("n on q0", "n again on q0"))
    (line,) = missing_lines(workspace, Wanted(("m", "n")))
    assert line.startswith("n: 2 of 8 games were judged before its answers")


def test_files_that_cannot_be_read_make_all_games_due(workspace: Workspace, monkeypatch: pytest.MonkeyPatch,
                                                      tmp_path: Path) -> None:
    from automate.arena.benchmark import read_questions

    questions = read_questions(workspace.questions, workspace.settings.bench)
    workspace.answer_journal("m").parent.mkdir(parents=True, exist_ok=True)
    workspace.answer_file("m").write_bytes(b"\xff\xfe\n")
    assert Awaited(workspace, questions, {"m"}).games("m", []) == 8
    write_answers(workspace, "m")
    assert Awaited(workspace, questions, {"m"}).games("m", ["q0"]) == 1
