"""The watch: it follows what is written, takes in new plans and settings, and outlives what it can't read."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from automate.arena.context import load_match
from automate.arena.counting.progress import Progress
from automate.arena.games import Game
from automate.campaign.demo import make_demo
from automate.campaign.monitoring.monitor import Watch, snapshot
from automate.campaign.plans import make_plan, save_plan
from automate.cli.views.monitor_text import lines
from automate.cli.views.words import batches as batches_in_words
from automate.cluster.local.executor import LocalQueue
from automate.cluster.submit import Submission, SubmissionBook
from automate.errors import DataError
from automate.journal import RecordWriter, write_json
from automate.processes import process_start
from automate.workspace import Workspace, open_workspace
from tests.unit.support import record_of

MODELS = ("example-step1000", "example-step2000", "example-final")
PLAN = "20240101_000000"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    make_demo(tmp_path / "ws")
    return open_workspace(tmp_path / "ws")


def games_of(workspace: Workspace, model: str) -> list[Game]:
    return Progress(workspace, load_match(workspace), [model]).models[model].games


def plan(workspace: Workspace, models: tuple[str, ...] = MODELS[:2], plan_id: str = PLAN, first: int = 1) -> None:
    save_plan(workspace, make_plan(workspace, dict.fromkeys(models, 24), size=1, first=first, max_array_size=100,
                                   limit_questions=None, plan_id=plan_id))


def hand_in(workspace: Workspace, state: str, plan_id: str = PLAN, number: int = 1, batch: int = 1) -> None:
    """A batch's job in the local queue, as this very process where it runs."""
    SubmissionBook(workspace.submissions).save(Submission(
        f"s{number}", plan_id, "name", "script", "local", {batch: batch}, True, job=f"local-{number}"))
    job = f"local-{number}_{batch}"
    LocalQueue(workspace.local_queue).save({
        "job": job, "number": number, "index": batch, "name": "name", "script": "script", "state": state,
        "created": time.time(), "started": time.time() - 60, "pid": os.getpid(), "host": "here",
        "pid_start": process_start(os.getpid()), "parallel": 1})


def say(workspace: Workspace, **values: object) -> None:
    """The run record of the first batch's job."""
    write_json(workspace.runs / "one.json", {
        "plan": PLAN, "batch": 1, "judge": workspace.settings.judge.name, "job": "local-1_1",
        "started": time.time() - 100, "updated": time.time(), **values})


def test_games_that_are_appended_are_counted(workspace: Workspace) -> None:
    watch = Watch(lambda: workspace)
    assert watch.look().totals["games"] == 0
    games = games_of(workspace, MODELS[0])
    writer = RecordWriter(workspace.journal(MODELS[0], "example-baseline") / "a.jsonl")
    writer.append(record_of(games[0]))
    assert watch.look().totals["games"] == 1
    for game in games[1:]:
        writer.append(record_of(game))
    writer.append_line(b'{"source": "engine", "torn')
    line = watch.look().models[0]
    assert (line.games, line.due, line.state) == (24, 0, "complete")
    shutil.rmtree(workspace.state / "journal")
    assert watch.look().totals["games"] == 0


def test_a_new_plan_and_its_models_are_taken_in(workspace: Workspace) -> None:
    watch = Watch(lambda: workspace)
    assert watch.look().batches == ()
    plan(workspace)
    assert [(line.batch, line.state) for line in watch.look().batches] == [(1, "planned"), (2, "planned")]
    hand_in(workspace, "RUNNING")
    say(workspace, phase="loading")
    seen = watch.look()
    assert [(job.job, job.batch, job.phase) for job in seen.running] == [("local-1_1", 1, "loading")]
    assert [line.state for line in seen.batches] == ["running", "planned"]
    workspace.models_file.write_text(f"{MODELS[0]}\n")
    assert [model.model for model in watch.look().models] == [MODELS[0]]
    plan(workspace, ("example-final",), "20240202_000000", 7)
    hand_in(workspace, "RUNNING", "20240202_000000", 2, 7)
    seen = watch.look()
    assert [model.model for model in seen.models] == [MODELS[0], "example-final"]
    assert [job.batch for job in seen.running] == [1, 7]


def test_a_job_that_ended_with_games_due_is_a_failure_until_they_are_played(workspace: Workspace) -> None:
    plan(workspace)
    hand_in(workspace, "FAILED")
    say(workspace, phase="ended", status=1, error="the server went away\n  -> start it again")
    watch = Watch(lambda: workspace)
    found = watch.look().failures
    assert [(one.cause, one.todo, one.due) for one in found] == [("the server went away", "start it again", 24)]
    assert watch.look().failures == found
    writer = RecordWriter(workspace.journal(MODELS[0], "example-baseline") / "a.jsonl")
    for game in games_of(workspace, MODELS[0]):
        writer.append(record_of(game))
    assert watch.look().failures == ()


def test_settings_that_change_are_taken_in_and_broken_ones_are_told(workspace: Workspace) -> None:
    watch = Watch(lambda: open_workspace(workspace.root))
    assert watch.look().judge == "example-judge-rehearsal"
    text = workspace.settings_file.read_text()
    workspace.settings_file.write_text(text.replace("name: example-judge", "name: other-judge"))
    assert watch.look().judge == "other-judge-rehearsal"
    workspace.settings_file.write_text("judge: [")
    seen = watch.look()
    assert seen.judge == "other-judge-rehearsal"
    assert "the settings as they were before are shown" in seen.problems[0]
    workspace.settings_file.write_text(text)
    seen = watch.look()
    assert (seen.judge, seen.problems) == ("example-judge-rehearsal", ())


def test_answers_that_come_and_go_are_followed(workspace: Workspace) -> None:
    watch = Watch(lambda: workspace)
    file = workspace.answer_file(MODELS[0])
    kept = file.read_bytes()
    assert watch.look().models[0].answers == 12
    file.unlink()
    assert (watch.look().models[0].answers, watch.look().models[0].state) == (0, "no answers")
    file.write_bytes(kept)
    assert watch.look().models[0].answers == 12


def test_without_the_baseline_the_rest_is_shown_until_it_comes_back(workspace: Workspace) -> None:
    watch = Watch(lambda: workspace)
    file = workspace.answer_file("example-baseline")
    kept = file.read_bytes()
    watch.look()
    file.unlink()
    for _ in range(2):
        seen = watch.look()
        assert [model.state for model in seen.models[:3]] == ["unknown"] * 3
        assert len(seen.problems) == 1
        assert seen.baseline_answers == {"example-baseline": None}
    file.write_bytes(kept)
    seen = watch.look()
    assert (seen.models[0].state, seen.problems) == ("waiting", ())
    assert seen.baseline_answers == {"example-baseline": 12}


def test_what_cant_be_read_is_told_and_the_last_state_of_the_jobs_stays(workspace: Workspace) -> None:
    plan(workspace)
    hand_in(workspace, "RUNNING")
    watch = Watch(lambda: workspace)
    assert len(watch.look().running) == 1
    broken = workspace.plans / "20250101_000000.json"
    broken.write_text('{"id": "x"}')
    seen = watch.look()
    assert len(seen.running) == 1
    assert any("the jobs are shown as they were before" in problem for problem in seen.problems)
    with pytest.raises(DataError):
        snapshot(workspace)
    broken.unlink()
    assert watch.look().problems == ()


def test_files_may_vanish_at_any_time(workspace: Workspace) -> None:
    plan(workspace)
    hand_in(workspace, "FAILED")
    say(workspace, phase="ended")
    workspace.logs.mkdir(parents=True, exist_ok=True)
    (workspace.logs / "dangling.out").symlink_to("nowhere")
    watch = Watch(lambda: workspace)
    assert len(watch.look().failures) == 1
    for folder in (workspace.runs, workspace.local_queue, workspace.plans, workspace.submissions, workspace.logs):
        shutil.rmtree(folder)
        watch.look()
    assert watch.look().batches == ()


def test_a_long_watch_keeps_nothing_that_grows(workspace: Workspace) -> None:
    plan(workspace)
    hand_in(workspace, "FAILED")
    watch = Watch(lambda: workspace)
    games = games_of(workspace, MODELS[0])
    for number in range(30):
        say(workspace, phase="ended", error=f"error {number}", updated=time.time() + number)
        writer = RecordWriter(workspace.journal(MODELS[0], "example-baseline") / f"{number}.jsonl")
        writer.append(record_of(games[number % 20]))
        writer.close()
        watch.look()
    sizes = [len(value) for value in vars(watch).values() if isinstance(value, dict | list | tuple)]
    assert max(sizes) <= 4


def test_the_picture_is_json(workspace: Workspace) -> None:
    plan(workspace)
    hand_in(workspace, "RUNNING")
    say(workspace, phase="playing", rate=1.0, server={"running": 2, "time": time.time()},
        gpu_use=[{"index": 0, "name": "H100"}])
    data = json.loads(json.dumps(snapshot(workspace).as_json()))
    assert data["running"][0]["server"]["running"] == 2
    assert data["running"][0]["gpu_use"][0]["name"] == "H100"
    assert data["rates"]["games_per_second"] == 1.0
    assert data["queue"]["problem"] == ""
    assert data["totals"]["wanted"] == 72
    assert data["batches"][0]["models"] == [MODELS[0]]


def test_another_judges_ended_batches_are_not_shown(workspace: Workspace) -> None:
    plan(workspace)
    hand_in(workspace, "FAILED")
    judge = workspace.settings.judge.model_copy(update={"name": "other-rehearsal"})
    other = replace(workspace, settings=workspace.settings.model_copy(update={"judge": judge}))
    assert len(snapshot(workspace).failures) == 1
    assert snapshot(other).failures == ()


# --- the command in a terminal


def in_terminal(root: Path, *, columns: int = 80, rows: int = 24, term: str = "xterm-256color",
                act: Callable[[subprocess.Popen[bytes], int], object]) -> tuple[int, str]:
    """Run `monitor --watch` in a terminal of its own until it ends; its status and all that it wrote."""
    ours, theirs = pty.openpty()
    env = {**{k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}, "TERM": term}
    subprocess.run(["stty", "cols", str(columns), "rows", str(rows)], stdin=theirs, check=True)
    before = subprocess.run(["stty", "-g"], stdin=theirs, capture_output=True, check=True).stdout
    process = subprocess.Popen([sys.executable, "-m", "automate", "monitor", "--watch", "--interval", "2"], cwd=root,
                               stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True)
    written = read_until(ours, "example-final" if term != "dumb" else "games")
    act(process, ours)
    status = process.wait(20)
    written += read_until(ours, "jobs go on", 2)
    assert subprocess.run(["stty", "-g"], stdin=theirs, capture_output=True, check=True).stdout == before
    os.close(theirs)
    os.close(ours)
    return status, written


def read_until(fd: int, word: str, seconds: float = 20) -> str:
    until, out = time.monotonic() + seconds, b""
    while word.encode() not in out and (left := until - time.monotonic()) > 0:
        if select.select([fd], [], [], left)[0]:
            out += os.read(fd, 65536)
    return out.decode("utf-8", "replace")


ENDS: dict[str, tuple[Callable[[subprocess.Popen[bytes], int], object], int]] = {
    "q": (lambda process, fd: os.write(fd, b"q"), 0),
    "ctrl-c": (lambda process, fd: process.send_signal(signal.SIGINT), 0),
    "sigterm": (lambda process, fd: process.send_signal(signal.SIGTERM), 143),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_live_view_ends_and_leaves_the_terminal_as_it_was(workspace: Workspace, end: str) -> None:
    act, expected = ENDS[end]
    status, written = in_terminal(workspace.root, act=act)
    assert status == expected
    assert written.startswith("\x1b[?1049h")
    assert written.count("\x1b[?1049h") == written.count("\x1b[?1049l") == 1
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")
    assert "Traceback" not in written
    assert ("The view has ended; the jobs go on." in written) is (end != "sigterm")


def test_a_dumb_terminal_gets_lines(workspace: Workspace) -> None:
    status, written = in_terminal(workspace.root, term="dumb", act=ENDS["ctrl-c"][0])
    assert status == 0
    assert "\x1b" not in written
    assert "0 of 72 games" in written


def test_a_watch_into_a_pipe_writes_a_line_each_interval(workspace: Workspace) -> None:
    process = subprocess.Popen([sys.executable, "-m", "automate", "monitor", "--watch", "--interval", "2"],
                               cwd=workspace.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=20)
    assert (process.returncode, "\x1b" in first + rest) == (0, False)
    assert "0 of 72 games; 0 running, 0 pending" in first
    assert errors == "The view has ended; the jobs go on.\n"


def test_odd_options_are_refused(workspace: Workspace) -> None:
    for options, words in ((["--watch", "--json"], "don't go together"), (["--watch", "--interval", "1"], "2<=x")):
        done = subprocess.run([sys.executable, "-m", "automate", "monitor", *options], cwd=workspace.root,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert words in done.stderr


@pytest.mark.parametrize("without", ["questions", "answers"])
def test_a_failed_batch_is_not_called_complete_where_games_can_t_be_counted(workspace: Workspace, without: str) -> None:
    plan(workspace)
    hand_in(workspace, "FAILED")
    if without == "questions":
        workspace.questions.unlink()
    else:
        for model in MODELS:
            workspace.answer_file(model).unlink()
    found = snapshot(workspace)
    said = batches_in_words(tuple(batch for batch in found.batches if batch.batch == 1))
    assert said == "1 batch: failed (games not counted)"
    [failure] = found.failures
    assert (failure.batch, failure.state) == (1, "failed")
    assert "0 games due" not in "\n".join(lines(found))
