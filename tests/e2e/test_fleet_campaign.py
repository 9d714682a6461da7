"""Campaigns on a fleet of servers, on this machine, by the command line: servers and engine die, every game once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import (
    EXAMPLE_BASELINE,
    EXAMPLES,
    assert_complete,
    assert_no_sockets,
    assert_nothing_runs,
    change_settings,
    command,
    environment,
    eventually,
    flock,
    games_of,
    jobs,
    journal,
    judge_now,
    judge_settings,
    kill,
    make_workspace,
    read_answers,
    read_questions,
    read_rows,
    repeated,
    rows_file,
    said,
    verdicts_of,
    victims,
)

SLOW: Mapping[str, Any] = {"concurrency": 1, "rehearsal": {"latency": 0.5}}
"""One game at a time on each server, half a second each."""


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Path]:
    """A workspace with the bundled example: 12 questions, three models, 72 games; nothing of it is left running."""
    root = make_workspace(tmp_path / "example", fleet={"heartbeat": 1, "stale": 5, "idle": 20})
    yield root
    flock("cancel", cwd=root)
    assert_nothing_runs(root)


def begin(root: Path, *args: str) -> subprocess.Popen[str]:
    """`judge --submit --wait` on this machine, in the background."""
    return subprocess.Popen(command("judge", "--submit", "--wait", "--executor", "local", *args), cwd=root,
                            env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str], status: int = 0) -> str:
    """What it said until its end, on one line."""
    out, _ = process.communicate(timeout=240)
    assert process.returncode == status, f"exit {process.returncode} instead of {status}:\n{out}"
    return " ".join(out.split())


def played(root: Path, models: Sequence[str] = EXAMPLES) -> int:
    return sum(len(journal(root, model)) for model in models)


def fleet_file(root: Path, *parts: str) -> Path:
    return root.joinpath(".flock-hpc", "fleets", "judge", *parts)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def starts(root: Path) -> list[dict[str, Any]]:
    """What every start of a server said of itself."""
    return [read(path) for path in sorted(fleet_file(root, "runs").glob("*.json"))]


def submitted(root: Path) -> list[dict[str, Any]]:
    """Every handing over of servers."""
    return [read(path) for path in sorted(fleet_file(root, "submissions").glob("*.json"))]


def registered(root: Path) -> list[str]:
    return sorted(path.name for path in fleet_file(root, "workers").glob("*.json"))


def assert_all_complete(root: Path, models: Sequence[str] = EXAMPLES, baseline: str | None = None) -> None:
    questions, theirs = read_questions(root), read_answers(root, baseline or EXAMPLE_BASELINE)
    for model in models:
        assert_complete(read_rows(rows_file(root, model, baseline)), questions, theirs=theirs,
                        ours=read_answers(root, model))


# --- the whole way --------------------------------------------------------------------------------
def test_servers_and_engine_are_killed_and_every_game_is_played_once(example: Path, tmp_path: Path) -> None:
    judge_settings(example, **SLOW)
    campaign = begin(example, "--all", "--fleet", "3")
    eventually(lambda: played(example) >= 6 and len(registered(example)) == 3, "three servers play")
    first = read(fleet_file(example, "fleet.json"))
    for process in victims(example)["worker"][:2]:
        assert kill(process)
    eventually(lambda: len(starts(example)) >= 4, "a killed server is replaced")
    before = played(example)
    assert before < 60, "the engine is to be killed in the middle"
    assert kill(victims(example)["engine"][0])
    said_all = ended(campaign)
    assert "handed over again" in said_all
    assert "fleet 'judge' is there already and is used" in said_all
    assert read(fleet_file(example, "fleet.json"))["id"] == first["id"]
    verdicts = verdicts_of(example, EXAMPLES)
    assert len(verdicts) == 72
    assert repeated(verdicts) == []
    assert_all_complete(example)
    assert_nothing_runs(example)
    assert_no_sockets(example)

    handed = jobs(example)
    assert "Nothing to do" in judge_now(example, "--all", "--fleet", "3")
    assert jobs(example) == handed

    ordinary = make_workspace(tmp_path / "ordinary")
    judge_settings(ordinary, rehearsal={})
    judge_now(ordinary, "--all", "--batch-size", "1")
    assert games_of(example, EXAMPLES) == games_of(ordinary, EXAMPLES)


def test_a_server_loads_once_and_plays_games_of_all_models(example: Path) -> None:
    judge_settings(example, concurrency=2, rehearsal={"latency": 0.2, "load_seconds": 1.0})
    judge_now(example, "--all", "--fleet", "2")
    assert [len(start["loads"]) for start in starts(example)] == [1, 1]
    run = read(next((example / ".flock-hpc" / "runs").glob("*.json")))
    assert run["gpus"] == 0
    assert set(run["models"]) == set(EXAMPLES)
    assert sum(worker["done"] for worker in run["fleet"]["workers"]) >= 72
    assert min(worker["done"] for worker in run["fleet"]["workers"]) > 0
    assert read(fleet_file(example, "wish.json"))["stop"] is True
    assert_nothing_runs(example)


def test_a_second_campaign_uses_the_fleet_of_the_first(example: Path) -> None:
    judge_settings(example, **SLOW)
    rival, other = EXAMPLES[:2]
    campaign = begin(example, "--models", rival, "--fleet", "1")
    eventually(lambda: played(example, [rival]) >= 2, "the first campaign plays")
    first = read(fleet_file(example, "fleet.json"))["id"]
    second = judge_now(example, "--models", other, "--baseline", rival, "--fleet", "2")
    assert "fleet 'judge' is there already and is used" in second
    ended(campaign)
    assert read(fleet_file(example, "fleet.json"))["id"] == first
    assert len({start["job"] for start in starts(example)}) == 2
    assert_all_complete(example, [rival])
    assert_all_complete(example, [other], rival)
    assert repeated(verdicts_of(example, [rival, other])) == []
    assert_nothing_runs(example)


def test_another_judge_does_not_get_the_fleet_of_this_one(example: Path) -> None:
    judge_settings(example, **SLOW)
    assert flock("judge", "--models", EXAMPLES[0], "--fleet", "1", "--submit", "--executor", "local",
                 cwd=example).returncode == 0
    eventually(lambda: registered(example), "a server is there")
    handed = jobs(example)
    judge_settings(example, rehearsal={"latency": 0.1})
    refused = flock("judge", "--models", EXAMPLES[1], "--fleet", "1", "--submit", "--executor", "local", cwd=example)
    assert refused.returncode != 0
    assert "serves something else" in said(refused)
    assert "flock-hpc serve --stop --name judge" in said(refused)
    assert jobs(example) == handed


CRASH = """
import os, sys
import automate.campaign.fleets.playing as playing
playing.submit_workers = lambda *args, **options: os.kill(os.getpid(), 9)
from automate.cli.main import main
sys.argv = ["flock-hpc", *sys.argv[1:]]
main()
"""
"""The command line, killed after the engine was handed in and before its first server is."""


def test_a_crash_between_engine_and_servers_is_settled_by_the_engine(example: Path) -> None:
    judge_settings(example, rehearsal={"latency": 0.1})
    died = subprocess.run([sys.executable, "-c", CRASH, "judge", "--all", "--fleet", "2", "--submit", "--executor",
                           "local"], cwd=example, env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=120)
    assert died.returncode == -signal.SIGKILL, died.stdout + died.stderr
    assert submitted(example) == []
    judge_now(example, "--all", "--fleet", "2")
    assert [one["by"] for one in submitted(example)] == ["engine"]
    assert_all_complete(example)
    assert repeated(verdicts_of(example, EXAMPLES)) == []
    assert_nothing_runs(example)


def test_an_engine_whose_time_is_over_goes_on_and_finds_the_servers_again(example: Path) -> None:
    judge_settings(example, concurrency=1, rehearsal={"latency": 0.4, "load_seconds": 12})
    change_settings(example, fleet={"engine_slurm": {"time": "00:00:14"}, "heartbeat": 1, "stale": 5, "idle": 60})
    judge_now(example, "--all", "--fleet", "2")
    runs = [read(path) for path in sorted((example / ".flock-hpc" / "runs").glob("*.json"))]
    assert len(runs) >= 2
    assert (runs[0]["played"], runs[0]["stopped_by"], runs[0]["next"]["kind"]) == (0, "time limit", "requeue")
    assert not runs[0].get("hopeless"), "it had no server yet: no fault of its time limit"
    assert [len(start["loads"]) for start in starts(example)] == [1, 1]
    assert len({run["job"] for run in runs}) == 1
    assert_all_complete(example)
    assert repeated(verdicts_of(example, EXAMPLES)) == []
    assert_nothing_runs(example)


# --- its end --------------------------------------------------------------------------------------
def test_servers_without_work_end_while_the_last_games_are_still_played(example: Path) -> None:
    judge_settings(example, concurrency=4, request_timeout=45, rehearsal={"latency": 0.1, "hang": 0.06})
    campaign = begin(example, "--all", "--fleet", "3")

    def ended_early() -> bool:  # one that loads still is cancelled, one that is ready is asked to end
        over = [start for start in starts(example) if start["phase"] == "ended"]
        return bool(over) and bool(victims(example).get("engine")) and played(example) < 72

    eventually(ended_early, "a server ends while games are in flight")
    assert registered(example), "one stays to the end"
    ended(campaign)
    said_by_engine = "".join(path.read_text() for path in (example / "logs").glob("**/judge-batch-1_*.out"))
    assert "given back: nothing is left to start" in said_by_engine
    assert len(verdicts_of(example, EXAMPLES)) == 72
    assert_nothing_runs(example)


def test_cancel_ends_the_servers_too_and_judge_goes_on_with_new_ones(example: Path) -> None:
    judge_settings(example, **SLOW)
    campaign = begin(example, "--all", "--fleet", "2")
    eventually(lambda: played(example) >= 4, "games are played")
    done = flock("cancel", cwd=example)
    assert done.returncode == 0, said(done)
    cancelled = {word for word in said(done).split() if word.startswith("local-")}
    assert cancelled >= {start["job"] for start in starts(example)}
    ended(campaign, 1)
    assert_nothing_runs(example)
    kept, first = played(example), read(fleet_file(example, "fleet.json"))["id"]
    judge_settings(example, concurrency=8)
    judge_now(example, "--all", "--fleet", "2")
    assert read(fleet_file(example, "fleet.json"))["id"] != first
    verdicts = verdicts_of(example, EXAMPLES)
    assert (len(verdicts), repeated(verdicts)) == (72, [])
    assert kept < 72


def test_a_fleet_whose_servers_cannot_start_ends_the_engine_with_the_cause(example: Path) -> None:
    (example / "templates").mkdir()
    (example / "templates" / "environment.sh.j2").write_text(
        "    echo 'error: unrecognized arguments: --no-such' >&2\n    exit 2\n")
    change_settings(example, limits={"claim_stale": 1, "poll": 0.5, "resubmits": 1})
    told = judge_now(example, "--all", "--fleet", "1", status=1)
    assert "has no worker for" in told
    assert "could not be started" in told
    assert played(example) == 0
    assert_nothing_runs(example)


def test_an_engine_beside_its_first_server(example: Path) -> None:
    judge_settings(example, concurrency=2, rehearsal={"latency": 0.2})
    change_settings(example, fleet={"engine": "beside", "heartbeat": 1, "stale": 5, "idle": 20})
    judge_now(example, "--all", "--fleet", "2")
    assert sum(len(one["tasks"]) for one in submitted(example)) == 1
    assert sorted(start["job"] is None for start in starts(example)) == [False, True]
    assert_all_complete(example)
    assert_nothing_runs(example)


# --- what means nothing ---------------------------------------------------------------------------
@pytest.mark.parametrize(("args", "judge", "words"), [
    (("--fleet", "2", "--batch-size", "1"), {}, "--batch-size means nothing with --fleet"),
    (("--fleet", "2", "--max-parallel", "1"), {}, "--max-parallel means nothing with --fleet"),
    (("--fleet", "2"), {"kind": "openai", "base_url": "http://127.0.0.1:1"}, "judge.kind is openai"),
    (("--fleet", "0"), {}, "no number of servers"),
    (("--fleet", "4..2"), {}, "no number of servers"),
    (("--fleet", "many"), {}, "no number of servers"),
])
def test_what_means_nothing_with_a_fleet_is_said(example: Path, args: tuple[str, ...], judge: dict[str, Any],
                                                 words: str) -> None:
    judge_settings(example, **judge)
    done = flock("judge", "--all", *args, cwd=example)
    assert done.returncode == 2, said(done)
    assert words in said(done)
    assert not (example / "generated_judgment_scripts").exists()


def test_without_submit_files_are_written_and_no_fleet_is_made(example: Path) -> None:
    done = flock("judge", "--all", "--fleet", "2..3", "--executor", "local", cwd=example)
    assert done.returncode == 0, said(done)
    assert "fleet 'judge' of 2..3 servers" in said(done)
    scripts = [path.name for path in (example / "generated_judgment_scripts").glob("*batch*.sh")]
    assert len(scripts) == 1
    assert not fleet_file(example).exists()
