"""The report job: its script, when one is handed in, and what it writes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from automate import __version__
from automate.campaign.chain_report import (
    Wanted,
    active_reports,
    after_these,
    arrange_report,
    check_version,
    report_jobs,
    script_text,
)
from automate.campaign.chain_results import (
    are_fresh,
    missing_lines,
    notices_of,
    report_words,
    steps_of,
    what_failed,
    write_results,
)
from automate.campaign.monitoring.monitor import snapshot
from automate.campaign.state import look
from automate.cli.views.dashboard import view as screen
from automate.cli.views.marks import UNICODE
from automate.cli.views.monitor_text import lines as text_of
from automate.cluster.local.executor import LocalCluster, directives
from automate.cluster.queue import JobState
from automate.errors import ConfigError
from automate.workspace import Workspace, open_workspace
from tests.e2e.chain_support import make_bare
from tests.e2e.support import EXAMPLES, bench_file, read_lines

FIRST, SECOND, LAST = EXAMPLES
WANTED = Wanted(EXAMPLES)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """The example in which the first model has no answers, in a folder with odd characters in its name."""
    return open_workspace(make_bare(tmp_path / "a 100%j 'work'", (FIRST,), slurm={
        "partition": "gpu", "account": "me", "gpus": 4, "constraint": "h100", "mem": "200G", "cpus_per_task": 32,
        "time": "12:00:00", "options": {"exclusive": True}}))


# --- the script -------------------------------------------------------------------------------------------
def test_the_job_is_small_and_asks_for_no_gpu(workspace: Workspace, tmp_path: Path) -> None:
    script = tmp_path / "report.sh"
    script.write_text(script_text(workspace, WANTED, "report-1", python="/usr/bin/python3"))
    asked = directives(script)
    assert (asked["partition"], asked["account"]) == ("gpu", "me")
    assert (asked["time"], asked["mem"], asked["cpus-per-task"]) == ("00:30:00", "4G", "2")
    assert not {"gres", "constraint", "exclusive", "array"} & asked.keys()
    assert asked["job-name"].startswith("arena-report-")


def words_of(text: str) -> list[str]:
    return shlex.split(text[text.index("exec "):].replace("\\\n", " "))


def test_the_script_names_models_and_options_quoted(workspace: Workspace) -> None:
    text = script_text(workspace, Wanted(("a b", "$(x)"), "base'line", 3), "report-1", python="/a python")
    assert words_of(text) == [
        "exec", "/a python", "-m", "automate", "write-report", "--workspace", str(workspace.root), "--version",
        __version__, "--baseline", "base'line", "--limit-questions", "3", "--model", "a b", "--model", "$(x)"]
    plain = script_text(workspace, Wanted(("a",)), "report-1", python="python3")
    assert words_of(plain)[-2:] == ["--model", "a"]
    assert "--baseline" not in plain
    assert "--limit-questions" not in plain


def test_another_version_is_refused(tmp_path: Path) -> None:
    check_version(__version__, tmp_path)
    with pytest.raises(ConfigError, match=r"0\.0\.1"):
        check_version("0.0.1", tmp_path)


# --- when one is handed in --------------------------------------------------------------------------------
class Idle(LocalCluster):
    """A local queue in which nothing ever starts."""

    def _start_runner(self) -> None:
        """Nothing runs here."""


@pytest.fixture
def idle(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Idle:
    """The workspace's queue, as if a runner were alive."""
    monkeypatch.setattr("automate.cluster.local.executor.LocalQueue.runner_alive", lambda _: True)
    return Idle(workspace.local_queue, workspace.root)


def test_there_is_one_report_job_at_a_time(workspace: Workspace, idle: Idle) -> None:
    first = arrange_report(workspace, idle, WANTED, new_jobs=True, fresh=False)
    assert first is not None
    assert first.after is None
    assert arrange_report(workspace, idle, WANTED, new_jobs=False, fresh=False) is None
    assert list(active_reports(workspace, look(workspace))) == [first.job]
    assert [job.job for job in report_jobs(look(workspace))] == [first.job]


def test_fresh_results_need_no_job(workspace: Workspace, idle: Idle) -> None:
    assert arrange_report(workspace, idle, WANTED, new_jobs=False, fresh=True) is None
    assert report_jobs(look(workspace)) == []


class View:
    """As much of a batch as a report looks at."""

    def __init__(self, job: str | None) -> None:
        self.job = job


def test_an_array_is_waited_for_by_its_one_id() -> None:
    views = [View("7_1"), View("7_2"), View("9"), View(None), View("local-3_1")]
    assert after_these(views, "slurm") == ["7", "9"]  # type: ignore[arg-type]
    assert after_these(views, "local") == ["local-3"]  # type: ignore[arg-type]


# --- what it writes ---------------------------------------------------------------------------------------
def test_commands_of_the_results(workspace: Workspace) -> None:
    found = steps_of(workspace, Wanted(EXAMPLES, "other"))
    assert [step.arguments[0] for step in found] == ["leaderboard", "leaderboard"]
    assert all(step.arguments[1:5] == ("--workspace", str(workspace.root), "--baseline", "other") for step in found)
    names = tuple(f"m-rank8-alpha1e5-step{step}" for step in (100, 200))
    assert steps_of(workspace, Wanted(names))[-1].what == "curves"


def test_one_failure_does_not_keep_the_others_and_is_told(workspace: Workspace) -> None:
    ran: list[str] = []

    def run(arguments: Sequence[str]) -> tuple[int, str, str]:
        ran.append(arguments[-1])
        return (1, "", "no\x1b[31m luck\n") if arguments[-1] == "--markdown" else (0, "the table\n", "")

    lines: list[str] = []
    assert write_results(workspace, WANTED, lines.append, run) == 1
    assert len(ran) == 2
    folder = workspace.results
    assert (folder / "leaderboard.txt").read_text() == "the table\n"
    assert not (folder / "leaderboard.md").exists()
    missing, failed = what_failed(workspace)
    assert failed == ["leaderboard as Markdown", "report"]  # no game was judged, so there is nothing to report
    assert missing[0] == f"{FIRST}: no answers, so it was not judged"
    assert "leaderboard as Markdown: not made (exit status 1)" in lines
    assert "\x1b" not in "".join(lines)
    assert json.loads((folder / "report.json").read_text())["models"] == list(EXAMPLES)


def test_what_is_missing_is_counted(workspace: Workspace) -> None:
    file = bench_file(workspace.root, "model_answer", f"{SECOND}.jsonl")
    rows = read_lines(file)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[:7]))
    assert missing_lines(workspace, WANTED) == [
        f"{FIRST}: no answers, so it was not judged",
        f"{SECOND}: 7 of 12 answers; judged as far as they go",
        f"{SECOND}: 0 of 14 games were played",
        f"{LAST}: 0 of 24 games were played"]


def test_without_questions_it_says_that_nothing_can_be_counted(workspace: Workspace) -> None:
    workspace.questions.unlink()
    (line,) = missing_lines(workspace, WANTED)
    assert line.startswith("what is missing can't be counted")


def test_long_lists_of_what_is_missing_are_cut_on_the_page() -> None:
    assert notices_of(["a"]) == ["a"]
    found = notices_of([str(n) for n in range(30)])
    assert len(found) == 13
    assert found[-1] == "and 18 more, see missing.txt"


def test_results_are_stale_as_soon_as_an_answer_or_a_game_is_newer(workspace: Workspace) -> None:
    assert not are_fresh(workspace)
    workspace.results.mkdir()
    (workspace.results / "report.json").write_text(json.dumps({"began": 4e9}))
    assert are_fresh(workspace)
    (workspace.results / "report.json").write_text(json.dumps({"began": 1e9}))
    assert not are_fresh(workspace)  # the example's answers are newer than 2001


def test_states_that_are_over_are_not_active(workspace: Workspace, idle: Idle) -> None:
    job = arrange_report(workspace, idle, WANTED, new_jobs=True, fresh=False)
    assert job is not None
    record = idle.queue.jobs()[0]
    idle.queue.save({**record, "state": JobState.COMPLETED.value})
    assert active_reports(workspace, look(workspace)) == {}


# --- what the monitor says of it --------------------------------------------------------------------------
def test_a_line_says_what_the_report_job_does(workspace: Workspace, idle: Idle) -> None:
    assert report_words(workspace, look(workspace)) == ""
    job = arrange_report(workspace, idle, WANTED, new_jobs=True, fresh=False)
    assert job is not None
    assert report_words(workspace, look(workspace)) == f"job {job.job} writes the report"
    seen = snapshot(workspace)
    assert seen.as_json()["report"] == f"job {job.job} writes the report"
    assert f"📄 Job {job.job} writes the report" in "\n".join(text_of(seen))
    assert f"Job {job.job} writes the report" in [line.plain.strip() for line in screen(seen, 100, 40, UNICODE)]
    workspace.results.mkdir()
    made = {"began": job.intended + 1, "missing": ["a"], "failed": ["curves"]}
    (workspace.results / "report.json").write_text(json.dumps(made))
    assert report_words(workspace, look(workspace)) == (
        f"the report was written into results/ by job {job.job} (missing.txt has 1 line(s); not made: curves)")
    (workspace.results / "report.json").write_text(json.dumps({**made, "began": job.intended - 60}))
    assert report_words(workspace, look(workspace)) == f"job {job.job} writes the report"
    (workspace.submissions / f"{job.job}.cancelled").touch()
    assert report_words(workspace, look(workspace)) == ""
