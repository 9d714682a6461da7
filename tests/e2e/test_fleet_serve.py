"""`serve` as a user runs it: whole processes, the local executor, rehearsal servers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from automate import __version__
from automate.campaign.fleets.serving import open_fleet
from automate.fleets.jobs import alive_of
from automate.journal import read_json
from automate.serving.fleet.serving import FleetServing
from tests.e2e.support import (
    JUDGE,
    assert_nothing_runs,
    change_settings,
    command,
    environment,
    eventually,
    flock,
    make_workspace,
    processes_of,
    said,
)

FLEET = {"heartbeat": 0.5, "stale": 3.0}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace; what it leaves running is ended, and is a failure."""
    return make_workspace(tmp_path / "w", questions=2, fleet=FLEET,
                          generate={"kind": "rehearsal", "models": {"a1": {"base": "/m/base"},
                                                                    "a2": {"base": "/m/base"}}})


def serve(root: Path, *args: str, status: int = 0) -> str:
    done = flock("serve", *args, cwd=root, timeout=120)
    assert done.returncode == status, f"exit {done.returncode}:\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return said(done)


def fleets(root: Path, *args: str) -> list[dict[str, Any]]:
    done = flock("serve", "--status", "--json", *args, cwd=root)
    found: list[dict[str, Any]] = json.loads(done.stdout)["fleets"]
    return found


def states(root: Path, name: str = "default") -> dict[str, int]:
    """How many workers of the fleet are in which state."""
    [found] = fleets(root, "--name", name)
    counts: dict[str, int] = {}
    for row in found["workers"]:
        counts[row["state"]] = counts.get(row["state"], 0) + 1
    return counts


def registered(root: Path, name: str = "default") -> list[dict[str, Any]]:
    folder = root / ".flock-hpc" / "fleets" / name / "workers"
    return [record for path in sorted(folder.glob("*.json")) if (record := read_json(path))]


def workers(root: Path) -> list[psutil.Process]:
    return [one for one in processes_of(root).values() if "run-worker" in one.cmdline()]


async def answer(root: Path, model: str) -> str:
    """What a model of the fleet `mixed` says, asked as an engine asks."""
    fleet = open_fleet(root, "mixed")

    async def none_will_come() -> str | None:
        return None

    async with FleetServing(fleet.places, fleet.spec, model, say=print, job_alive=alive_of(fleet.cluster),
                            outlook=none_will_come, version=__version__) as serving, asyncio.timeout(60):
        client = await serving.client()
        reply = await client.chat([{"role": "user", "content": "<|User Prompt|>\nwho?"}], max_tokens=200,
                                  temperature=0.0)
    return reply.content or ""


def end(root: Path, *args: str) -> None:
    """Stop a fleet and see that nothing is left over."""
    serve(root, "--stop", *args)
    assert_nothing_runs(root)


def test_a_fleet_from_its_start_to_its_end(root: Path) -> None:
    shown = serve(root, JUDGE, "--replicas", "2")
    assert "nothing was submitted" in shown
    assert "no fleet" in serve(root, "--status")
    assert not processes_of(root)

    shown = serve(root, JUDGE, "--replicas", "2", "--submit", "--wait")
    assert "ready" in shown
    home = root / ".flock-hpc" / "fleets" / "default"
    key = (home / "key").read_text().strip()
    assert str(home / "key") in shown
    assert key not in shown
    assert states(root) == {"ready": 2}
    assert "2 of 2 servers ready" in serve(root, "--status")

    assert "submitted 1 server" in serve(root, "--scale", "3")
    eventually(lambda: states(root).get("ready") == 3, "a third server")
    assert "as many servers as that already" in serve(root, "--scale", "3")
    assert "asked to finish" in serve(root, "--scale", "1")
    eventually(lambda: states(root) == {"ready": 1, "ended": 2}, "two that were given back")
    eventually(lambda: len(registered(root)) == 1, "one that is registered")

    assert "asked to finish" in serve(root, "--stop")
    assert_nothing_runs(root)
    assert states(root) == {"ended": 3}
    assert registered(root) == []
    assert "is over" in serve(root, "--stop")
    for path in (*root.rglob("*.out"), *root.rglob("*.err"), *home.glob("runs/*"), *home.glob("submissions/*"),
                 *home.glob("gone/*"), home / "fleet.json", home / "worker_1.sh"):
        assert key not in path.read_text(), path

    serve(root, JUDGE, "--submit", "--wait")  # it is over, so that its name is free
    assert (home / "key").read_text().strip() != key
    assert [row["state"] for row in fleets(root)[0]["workers"]].count("ready") == 1
    end(root, "--now")


def test_a_killed_server_is_replaced_and_one_that_was_cancelled_is_not(root: Path) -> None:
    serve(root, JUDGE, "--replicas", "2", "--submit", "--wait")
    first = {one["id"] for one in registered(root)}
    victim = workers(root)[0]
    victim.send_signal(signal.SIGKILL)
    eventually(lambda: len(registered(root)) == 2 and len({one["id"] for one in registered(root)} - first) == 1,
               "another in its place", timeout=180)
    assert states(root)["ready"] == 2
    end(root)


def test_models_of_several_kinds(root: Path) -> None:
    serve(root, JUDGE, "a1", "a2", "someone/tiny", "--submit", "--wait", "--name", "mixed")
    [found] = fleets(root)
    assert [(model["model"], model["also"]) for model in found["models"]] == [
        (JUDGE, []), ("base", ["a1", "a2"]), ("tiny", [])]
    assert "submitted 1 server of base" in serve(root, "--scale", "2", "--model", "a2")
    eventually(lambda: states(root, "mixed").get("ready") == 4, "a second server of the adapters' base")
    said = {name: asyncio.run(answer(root, name)) for name in ("a1", "a2", "base", "tiny", JUDGE)}
    assert len(set(said.values())) == 5, "each name is another model"
    assert all(words.startswith("Rehearsed answer") == (name != JUDGE) for name, words in said.items())
    end(root)


def test_secrets_that_others_can_read_and_a_pipe_in_the_registry(root: Path) -> None:
    serve(root, JUDGE, "--submit")
    home = root / ".flock-hpc" / "fleets" / "default"
    eventually(lambda: registered(root), "a server")
    for folder in ("workers", "runs", "users"):
        os.mkfifo(home / folder / "pipe.json")
    assert "not safe" not in serve(root, "--status")
    (home / "key").chmod(0o644)
    shown = serve(root, "--status")
    assert "not safe:" in shown
    assert "open to other users (mode 0644)" in " ".join(shown.split())
    done = json.loads(flock("serve", "--status", "--json", cwd=root).stdout)
    assert "mode 0644" in done["warnings"]["default"]
    assert "mode 0644" in " ".join(serve(root, "--scale", "2", status=1).split())
    end(root)
    for folder in ("workers", "runs", "users"):
        (home / folder / "pipe.json").unlink()


def test_servers_count_as_jobs_of_the_workspace(root: Path) -> None:
    change_settings(root, limits={"max_submitted": 2})
    assert "limits.max_submitted=2: 0 jobs in the queue, and 3 servers asked for" in " ".join(
        serve(root, JUDGE, "--replicas", "3", "--submit", status=1).split())
    assert not (root / ".flock-hpc" / "fleets" / "default" / "fleet.json").exists()
    serve(root, JUDGE, "--replicas", "2", "--submit")
    assert "2 jobs in the queue, and 1 server asked for" in " ".join(
        serve(root, JUDGE, "--name", "other", "--submit", status=1).split())
    assert "2 jobs in the queue, and 2 servers asked for" in " ".join(serve(root, "--scale", "4", status=1).split())
    assert "as many servers as that already" in serve(root, "--scale", "2")
    end(root)


def test_two_commands_at_once_make_one_fleet(root: Path) -> None:
    line = command("serve", JUDGE, "--submit")
    both = [subprocess.Popen(line, cwd=root, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True) for _ in range(2)]
    words = [one.communicate(timeout=120) for one in both]
    assert sorted(one.returncode for one in both) == [0, 1], words
    refused = next(error for one, (_, error) in zip(both, words, strict=True) if one.returncode)
    assert "there is a fleet 'default' already" in refused or "another is at work on the fleet" in refused
    eventually(lambda: states(root).get("ready") == 1, "one server")
    assert len(list((root / ".flock-hpc" / "local").glob("local-*.json"))) == 1
    end(root)


def test_a_second_fleet_of_a_name_is_refused_with_all_that_is_known_of_the_first(root: Path) -> None:
    serve(root, JUDGE, "--submit", "--wait", "--name", "mine")
    before = read_json(root / ".flock-hpc/fleets/mine/fleet.json") or {}
    words = serve(root, "a1", "--submit", "--name", "mine", status=1)
    for part in ("'mine'", before["id"], "local-1_0 (RUNNING)", "1 worker registered", "--name", "--scale", "--stop"):
        assert part in words
    assert "'mine' already" in serve(root, "a1", "--name", "mine", status=1), "its scripts are in use"
    assert read_json(root / ".flock-hpc/fleets/mine/fleet.json") == before
    serve(root, "a1", "--submit", "--name", "other")
    assert "there are 2 fleets: mine, other" in serve(root, "--scale", "2", status=1)
    assert len(fleets(root)) == 2
    assert "did you mean mine?" in serve(root, "--status", "--name", "mind", status=1)
    serve(root, "--stop", "--name", "mine")
    eventually(lambda: states(root, "mine") == {"ended": 1}, "the first one's end")
    assert "asked to finish" in serve(root, "--stop"), "the only one that is not over"
    assert_nothing_runs(root)


def test_servers_that_can_not_start_are_given_up_with_the_reason(root: Path, tmp_path: Path) -> None:
    broken = make_workspace(tmp_path / "b", questions=2, fleet=FLEET, judge={"rehearsal": {"no-such-option": 1}})
    words = serve(broken, JUDGE, "--replicas", "2", "--submit", "--wait", status=1)
    assert "there will be no server" in words
    assert "server arguments" in words
    [found] = fleets(broken)
    assert (found["state"], len(found["workers"])) == ("over", 2), "nobody asks for more of them"
    assert all("server arguments" in failure["cause"] for failure in found["failures"])
    assert_nothing_runs(broken)
    del root


@pytest.mark.parametrize(("args", "status", "words"), [
    ((), 2, "name a MODEL to serve"), ((JUDGE, "--status"), 2, "don't go together"),
    (("--status", "--stop"), 2, "don't go together"), (("--stop", "--submit"), 2, "--submit goes with MODEL"),
    (("--scale", "2", "--now"), 2, "--now goes with --stop"), (("--status", "--model", "x"), 2, "goes with --scale"),
    ((JUDGE, "--json"), 2, "--json goes with --status"), ((JUDGE, "--wait"), 2, "--wait needs --submit"),
    (("--scale", "0"), 1, "no number of servers"), ((JUDGE, "--replicas", "8..2"), 1, "no number of servers"),
    ((JUDGE, "--replicas", "lots"), 1, "no number of servers"), (("--scale", "2"), 1, "there is no fleet"),
    (("--stop",), 1, "there is no fleet"), (("--status", "--name", "x"), 1, "there is no fleet 'x'"),
    ((JUDGE, "--name", "../x"), 1, "can't be a fleet's name"), ((JUDGE, "--name", "a b"), 1, "can't be a fleet's name"),
    ((JUDGE, "--name", ""), 1, "can't be a fleet's name"), (("..",), 1, "can't be a model's name"),
])
def test_what_makes_no_sense_is_refused_in_words(root: Path, args: tuple[str, ...], status: int, words: str) -> None:
    assert words in serve(root, *args, status=status)
    assert not (root / ".flock-hpc" / "fleets").exists()
