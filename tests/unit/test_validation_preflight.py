"""`validate-only` says of Flock validation what is missing before an assignment is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from automate.arena.preflight.codes import CODES
from automate.cli.checks import validate_only as command
from automate.errors import ConfigError
from automate.validation import preflight
from automate.validation.api_errors import ApiUnavailable, BadKey
from automate.validation.assignments import DataFile, Snapshot, State
from automate.validation.catalogue import Source
from automate.validation.check import Check
from automate.validation.environments import EnvironmentState
from automate.validation.replies import Task
from automate.validation.spool import Spool
from automate.validation_places import ValidationPlaces
from tests.unit.validation_files_rig import admit, make_places

ENVIRON = {"FLOCK_API_KEY": "k-0123456789", "HF_TOKEN": "hf_0123456789"}


class Api:
    """An API of two tasks; `key` is what asking about the key gives."""

    def __init__(self, key: bool | Exception = True, tasks: list[Task] | Exception | None = None) -> None:
        self.key = key
        self.list = [Task("1", "First", status="submission_phase"), Task("2")] if tasks is None else tasks

    def tasks(self) -> list[Task]:
        if isinstance(self.list, Exception):
            raise self.list
        return self.list

    def check_key(self, task_id: str | None = None) -> bool:
        if isinstance(self.key, Exception):
            raise self.key
        return self.key


def source(name: str, places: ValidationPlaces) -> Source:
    if name == "unknown":
        raise ConfigError("there is no validation module 'unknown'")
    return Source(name, None, None, None, "shipped")


def built(status: str, why: str = "") -> Callable[[Source, ValidationPlaces], EnvironmentState]:
    return lambda found, places: EnvironmentState(
        f"flock-validation-{found.name}", status, "venv", None, "", why)  # type: ignore[arg-type]


def look(places: ValidationPlaces, *, environ: Mapping[str, str] = ENVIRON, api: Api | None = None,
         status: str = "ready", why: str = "", modules: tuple[str, ...] = (),
         task_ids: tuple[str, ...] = ()) -> list[Check]:
    return preflight.checks(places, Spool(places), environ=environ, api=lambda: api or Api(), modules=modules,
                            task_ids=task_ids, find=source, state=built(status, why))


def of(found: list[Check], code: str) -> list[tuple[str, str]]:
    return [(one.level, one.subject) for one in found if one.code == code]


def test_all_is_well(tmp_path: Path) -> None:
    found = look(make_places(tmp_path), modules=("rl",), task_ids=("1",))
    assert {one.level for one in found} == {"ok"}
    assert {one.code for one in found} == {"FH510", "FH511", "FH513", "FH516", "FH517"}
    assert {one.code for one in found} <= CODES.keys()


@pytest.mark.parametrize(("environ", "api", "level"), [
    ({}, Api(), "error"), ({"FLOCK_API_KEY": " "}, Api(), "error"), ({"FLOCK_API_KEY": "a\nb"}, Api(), "error"),
    (ENVIRON, Api(BadKey("the API refuses the key")), "error"), (ENVIRON, Api(ApiUnavailable("down")), "warning"),
    (ENVIRON, Api(False), "note"), (ENVIRON, Api(True), "ok")])
def test_the_key(tmp_path: Path, environ: Mapping[str, str], api: Api, level: str) -> None:
    found = look(make_places(tmp_path), environ=environ, api=api)
    assert of(found, "FH510") == [(level, next(one.subject for one in found if one.code == "FH510"))]
    assert "0123456789" not in str(found) and "a\nb" not in str(found)


def test_a_task_that_the_api_does_not_list(tmp_path: Path) -> None:
    found = look(make_places(tmp_path), task_ids=("1", "7"))
    assert of(found, "FH511") == [("ok", "task 1"), ("error", "task 7")]


def test_a_task_that_has_ended_but_for_its_config(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    (places.configs / "tasks").mkdir(parents=True)
    (places.configs / "tasks" / "9.json").write_text("{}")
    assert of(look(places), "FH511") == [("warning", "task 9")]
    spool = Spool(places)
    spool.save(replace(admit(spool), task_id="9"))
    assert of(look(places), "FH511") == [("error", "task 9")]


def test_an_api_that_is_down_is_a_warning(tmp_path: Path) -> None:
    found = look(make_places(tmp_path), api=Api(True, ApiUnavailable("down")), task_ids=("1",))
    assert [level for level, _ in of(found, "FH511")] == ["warning"]


def test_modules_and_tasks_are_those_that_the_workspace_names(tmp_path: Path) -> None:
    places = make_places(tmp_path, module_slurm={"rl": {"gpus": 0}})
    spool = Spool(places)
    admit(spool, "7", module="lora")
    spool.move(admit(spool, "8", module="llm_judge"), State.SUBMITTED)
    (places.configs / "tasks").mkdir(parents=True)
    (places.configs / "tasks" / "9.json").write_text("{}")
    assert preflight.named(places, spool) == (["lora", "rl"], ["1", "9"])
    assert of(look(places), "FH513") == [("ok", "module lora"), ("ok", "module rl")]


@pytest.mark.parametrize(("status", "why", "level"), [
    ("ready", "", "ok"), ("missing", "never built", "error"), ("outdated", "changed", "error"), ("current", "", "ok"),
    ("current", "numpy", "error")])
def test_an_environment(tmp_path: Path, status: str, why: str, level: str) -> None:
    assert of(look(make_places(tmp_path), modules=("rl",), status=status, why=why), "FH513") == [(level, "module rl")]


def test_an_unknown_module_and_none_at_all(tmp_path: Path) -> None:
    assert of(look(make_places(tmp_path), modules=("unknown",)), "FH512") == [("error", "module unknown")]
    assert of(look(make_places(tmp_path)), "FH512") == [("warning", "modules")]


def test_what_the_settings_name_must_be_there(tmp_path: Path) -> None:
    places = make_places(tmp_path, module_folders=["nope"], templates="nope2", judge_prompts="/nope3")
    found = look(places, modules=("rl",))
    assert of(found, "FH512") == [("error", "validation.module_folders")]
    assert of(found, "FH515") == [("error", "validation.templates"), ("error", "validation.judge_prompts")]


def test_configs_are_read_for_each_task(tmp_path: Path) -> None:
    def config(module: str, task_id: str) -> None:
        if task_id == "2":
            raise ConfigError("unknown key 'sca'", where="config of rl")

    places = make_places(tmp_path)
    found = preflight.checks(places, Spool(places), environ=ENVIRON, api=Api, modules=("rl",), task_ids=("1", "2"),
                             find=source, state=built("ready"), config=config)
    assert of(found, "FH519") == [("error", "config of rl")]
    found = preflight.checks(places, Spool(places), environ=ENVIRON, api=Api, modules=("rl",), task_ids=("1",),
                             find=source, state=built("ready"), config=config)
    assert of(found, "FH519") == [("ok", "config of rl")]


def test_a_configured_module_is_in_use(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    places.configs.mkdir()
    (places.configs / "example.json").write_text("{}")
    assert ("ok", "module example") in of(look(places), "FH513")


def test_files_of_fetched_assignments(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    spool = Spool(places)
    (data := admit(spool, "1", data={"validation_set_url": "x"}).folder / "data").mkdir()
    (data / "set").write_text("row")
    spool.save(replace(admit(spool, "1"), data=DataFile("data/set", 3, ""), needs_data=True))
    admit(spool, "2", data={"validation_set_url": "x"})
    admit(spool, "3", submission={"hg_repo_id": "o/m"})
    spool.save(replace(admit(spool, "4"), problem="the hub is down"))
    spool.save(replace(admit(spool, "5", submission={"hg_repo_id": "o/m"}),
                       model=Snapshot("o/m", "main", "a" * 40, str(tmp_path / "gone"))))
    found = look(places, modules=("rl",))
    assert of(found, "FH514") == [("ok", "assignments"), *(("warning", f"assignment {one}") for one in "2345")]
    assert "1 of 5" in next(one.what for one in found if one.code == "FH514")


def test_what_waits_for_a_person_and_what_can_not_be_read(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    spool = Spool(places)
    spool.move(admit(spool, "1"), State.GIVEN_UP)
    broken = admit(spool, "2").folder
    (broken / "assignment.json").write_text("{")
    assert [level for level, _ in of(look(places), "FH518")] == ["note", "error"]


def test_room_is_looked_for_where_models_go_too(tmp_path: Path) -> None:
    places = make_places(tmp_path, models={"folder": str(tmp_path / "elsewhere")}, min_free_gb=1e9)
    assert of(look(places), "FH516") == [("error", str(places.home)), ("error", str(tmp_path / "elsewhere"))]


def test_the_hubs_token(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    assert of(look(places, environ={"FLOCK_API_KEY": "k-0123456789"}), "FH517") == [("note", "HF_TOKEN")]
    assert of(look(places, environ={**ENVIRON, "HF_TOKEN": "a\x00b"}), "FH517")[0][0] == "error"


def test_checkouts(tmp_path: Path) -> None:
    def levels(**values: object) -> list[tuple[str, str]]:
        return of(look(make_places(tmp_path, **values), modules=("llm_judge", "lora")), "FH515")

    assert levels() == [("warning", "validation.templates"), ("error", "validation.judge_prompts")]
    assert levels(templates="nowhere", judge_prompts="nowhere") == [
        ("error", "validation.templates"), ("error", "validation.judge_prompts")]


# --- the command ----------------------------------------------------------------------------------
def validate_only(root: Path, *options: str) -> Result:
    return CliRunner().invoke(command, ["--workspace", str(root), *options])


def workspace(root: Path, text: str) -> Path:
    root.mkdir()
    (root / "flock-hpc.yaml").write_text(text)
    return root


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOCK_API_KEY", raising=False)
    monkeypatch.delenv("HF_TOKEN", raising=False)


def test_the_section_stands_alone_where_there_is_no_campaign(tmp_path: Path) -> None:
    root = workspace(tmp_path / "w", "validation: {max_outstanding: 2}\n")
    shown = validate_only(root)
    assert shown.exit_code == 1, shown.output
    assert "Flock validation is not ready: 1 error" in shown.output and "FH510" in shown.output
    assert "FH102" not in shown.output
    told = json.loads(validate_only(root, "--json").output)
    assert not told["ok"] and not told["findings"]
    assert "FH510" in {one["code"] for one in told["validation"]}


def test_the_section_stands_below_a_campaign(tmp_path: Path) -> None:
    root = workspace(tmp_path / "w", "validation: {max_outstanding: 2}\n")
    (root / "arena_hard_models_to_test.txt").write_text("model-a\n")
    told = json.loads(validate_only(root, "--json", "--executor", "local").output)
    assert told["findings"] and told["validation"]
    text = validate_only(root, "--executor", "local").output
    assert text.index("FH1") < text.index("Flock validation is not ready")


def test_no_section_where_validation_is_not_in_use(tmp_path: Path) -> None:
    root = workspace(tmp_path / "w", "batch_size: 2\n")
    (root / "arena_hard_models_to_test.txt").write_text("model-a\n")
    assert "validation" not in json.loads(validate_only(root, "--json", "--executor", "local").output)
    (root / ".flock-hpc" / "validation" / "spool").mkdir(parents=True)
    assert "validation" in json.loads(validate_only(root, "--json", "--executor", "local").output)
