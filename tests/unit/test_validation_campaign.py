"""The rooms put together: what the commands' processes hand on, what they refuse, and how a loop begins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automate.campaign.validation import circle as circles
from automate.campaign.validation.circle import Circle, Given
from automate.campaign.validation.running import run_here, run_loop
from automate.errors import ConfigError
from automate.validation import environments, jobs
from automate.validation.api_errors import BadKey
from automate.validation.assignments import State
from automate.validation.inner.files import Outcome, Result, write_result
from automate.validation.jobs.resources import job_environment
from automate.validation.standin import Fault, Plan, StandIn, TaskPlan
from automate.workspace import SETTINGS_FILE, open_workspace
from tests.unit.validation_support import nothing_needed

KEY, TOKEN = "flk-campaign-0123456789", "hf_campaign0123456789abcdef"
TYPED = Given(KEY, TOKEN)


def make(root: Path, base_url: str = "http://127.0.0.1:9/api/v1", *, given: Given = TYPED, executor: str = "local",
         environ: Mapping[str, str] | None = None, said: list[str] | None = None, **values: Any) -> Circle:
    """A circle over a workspace on disk; nobody listens at port 9."""
    root.mkdir(exist_ok=True)
    settings = {"base_url": base_url, "manager": "current", "min_free_gb": 0, "retries": 0, **values}
    (root / SETTINGS_FILE).write_text(json.dumps({"validation": settings}))
    said = [] if said is None else said
    return Circle(open_workspace(root), said.append, environ={"PATH": "/usr/bin:/bin"} if environ is None else environ,
                  given=given, executor=executor)


# --- keys -------------------------------------------------------------------------------------------
def test_a_key_that_was_typed_reaches_no_job_in_another_variable(tmp_path: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"PATH": "/bin", "VALIDATOR_FLOCK": KEY, "MINE": f"token={TOKEN};", "FLOCK_API_KEY": KEY}
    circle = make(tmp_path / "w", environ=environ)
    got: list[Mapping[str, str]] = []

    def noted(*_: object, **values: Any) -> None:
        got.append(values["environ"])

    def noted_last(*values: Any, **_: object) -> None:
        got.append(values[-1])

    monkeypatch.setattr(jobs, "hand_in", noted)
    monkeypatch.setattr(circles, "check_input", noted_last)
    monkeypatch.setattr(jobs, "second_step", noted_last)
    monkeypatch.setattr(circles, "submit_all", lambda *_, finish, **__: finish(None))
    circle.hand_in()
    replace(circle, debug=True).hand_in()
    circle.fetcher("example", ["7"], None)
    circle.submit()
    assert len(got) == 4
    for one in got:
        assert one["PATH"] == "/bin" and not any(KEY in value or TOKEN in value for value in one.values())
    assert job_environment(circle.workspace.settings, got[0]) == {"PATH": "/bin"}


def test_an_environment_is_built_without_a_key_that_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Mapping[str, str]] = []

    class Enough(Exception):
        pass

    def create(*_: object, environ: Mapping[str, str], **__: object) -> None:
        got.append(environ)
        raise Enough

    monkeypatch.setattr(environments, "create", create)
    with pytest.raises(Enough):
        run_here(make(tmp_path / "w", environ={"PATH": "/bin", "ODD": KEY}), "example", ["7"], once=True)
    assert got == [{"PATH": "/bin"}]


@pytest.mark.parametrize(("given", "environ", "private"), [
    (TYPED, {}, True), (Given(), {"FLOCK_API_KEY": KEY}, True), (Given(), {"HF_TOKEN": TOKEN}, True),
    (Given(), {"OPENAI_API_KEY": KEY}, True), (Given(), {"HF_TOKEN": " "}, False), (Given(), {}, False)])
def test_a_process_with_a_key_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Given,
                                         environ: dict[str, str], private: bool) -> None:
    calls: list[int] = []
    monkeypatch.setattr(circles, "keep_private", lambda: calls.append(1))
    make(tmp_path / "w", given=given, environ=environ)
    assert bool(calls) is private


@pytest.mark.parametrize(("given", "environ", "executor", "remote", "refused"), [
    (TYPED, {}, "local", True, "the command line"), (Given(), {"HF_TOKEN": TOKEN}, "local", True, "HF_TOKEN"),
    (Given(), {}, "local", True, None), (TYPED, {}, "local", False, None), (TYPED, {}, "slurm", True, None)])
def test_strangers_code_runs_on_no_machine_with_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Given,
                                                     environ: dict[str, str], executor: str, remote: bool,
                                                     refused: str | None) -> None:
    circle = make(tmp_path / "w", given=given, environ=environ, executor=executor, remote_code=remote)
    nothing = jobs.HandedIn(executor)
    monkeypatch.setattr(jobs, "hand_in", lambda *_, **__: nothing)
    if refused is None:
        assert circle.hand_in() is nothing
        return
    with pytest.raises(ConfigError, match=refused) as caught:
        circle.hand_in()
    assert "remote_code" in str(caught.value) and KEY not in str(caught.value) and TOKEN not in str(caught.value)
    with pytest.raises(ConfigError, match=refused):
        run_loop(circle, "example", ["7"], most=None, once=True)
    with pytest.raises(ConfigError, match=refused):
        run_here(circle, "example", ["7"], once=True)


# --- how a loop begins ------------------------------------------------------------------------------
PLAN = Plan((TaskPlan(7, submissions=1),), key=KEY)


def finished(root: Path, server: StandIn) -> str:
    """An assignment of the stand-in that has a result; its id."""
    circle = make(root, server.base_url)
    circle.fetcher("example", ["7"], None).turn()
    one, = circle.spool.listed()
    write_result(one.folder, Result(one.id, Outcome.COMPLETED, "example", {"score": 1.0}, {"score": 1.0}))
    circle.spool.move(nothing_needed(one), State.DONE)
    return one.id


@pytest.mark.parametrize("here", [False, True])
def test_an_api_that_is_down_at_the_start_keeps_no_finished_work_back(tmp_path: Path, here: bool) -> None:
    with StandIn(PLAN) as before:
        one = finished(tmp_path / "w", before)
    later: list[StandIn] = []
    port = int(before.origin.rpartition(":")[2])

    class Said(list[str]):
        def append(self, text: str) -> None:
            super().append(text)
            if "could not be checked" in text and not later:
                later.append(StandIn(port=port, books=before.books))
                later[0].__enter__()

    said = Said()
    circle = make(tmp_path / "w", before.base_url, said=said)
    try:
        status = run_here(circle, "example", ["7"], once=True) if here else run_loop(
            circle, "example", ["7"], most=None, once=True)
    finally:
        for server in later:
            server.stop()
    assert before.assignments[one].accepted == 1 and before.violations == []
    found = circle.spool.find(one)
    assert found is not None and found.state is State.SUBMITTED and status == 1
    assert any("no connection" in text and "goes on" in text for text in said)


def test_an_api_that_stays_away_ends_one_turn_without_an_error(tmp_path: Path) -> None:
    said: list[str] = []
    assert run_loop(make(tmp_path / "w", said=said), "example", ["7"], most=None, once=True) == 1
    assert any(text.startswith("fetch: ") for text in said)


def test_what_waiting_can_not_mend_still_stops_it(tmp_path: Path) -> None:
    with StandIn(Plan((TaskPlan(7, submissions=0),), key=KEY)) as server:
        with pytest.raises(BadKey):
            run_loop(make(tmp_path / "a", server.base_url, given=Given("flk-wrong-0123456789")), "example", ["7"],
                     most=None, once=True)
        with pytest.raises(ConfigError, match="no task 8"):
            run_loop(make(tmp_path / "b", server.base_url), "example", ["8"], most=None, once=True)
        with pytest.raises(ConfigError):
            run_loop(make(tmp_path / "c", server.base_url), "exampel", ["7"], most=None, once=True)
        server.inject("list", Fault.ERROR)
        assert run_loop(make(tmp_path / "d", server.base_url), "example", ["7"], most=None, once=True) == 1
