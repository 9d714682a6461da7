"""What a fleet serves: which model is what, which share servers, and what a group's script says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from automate.campaign.fleets.planning import spec_of
from automate.cluster.local.executor import directives
from automate.errors import ConfigError, ManyErrors
from automate.fleets.ending import lead_of
from automate.serving.fleet.records import FleetSpec
from automate.workspace import Workspace
from tests.unit.support import make_workspace
from tests.unit.test_answering_candidates import make_adapter, make_model

HOSTILE = "a'b $(touch x) `y` \"z\" ; rm"


def serve(workspace: Workspace, *models: str, least: int = 1, most: int = 2,
          name: str = "main") -> tuple[FleetSpec, dict[int, str]]:
    return spec_of(workspace, models, least, most, name=name, executor="slurm", python="/py")


def command(script: str) -> str:
    """The line that starts the server, with its continuation taken away."""
    part = script.partition('if [[ "${1:-}" == serve ]]; then')[2].partition("\nfi\n")[0]
    return " ".join(part.split())


def workspace_of(root: Path, **values: object) -> Workspace:
    judge = {"name": "judge-70b", "path": str(make_model(root / "judge")),
             "server": {"tensor_parallel_size": 2, "args": ["--seed", "1"], "load_timeout": 99, "stop_timeout": 5,
                        "restarts": 1}, "environment": {"venv": "/envs/j"}, "request_timeout": 77}
    slurm = {"gpus": 2, "partition": "gpu", "time": "04:00:00"}
    return make_workspace(root, **{"judge": judge, "slurm": slurm, **values})


def test_the_judge_by_its_name(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path)
    spec, scripts = serve(workspace, "judge-70b", least=2, most=5)
    [group] = spec.groups
    assert (group.model, group.also, group.least, group.most, group.gpus, group.settings) == (
        "judge-70b", (), 2, 5, 2, "judge")
    assert (group.time_limit, group.load_timeout, group.stop_timeout, group.restarts, group.request_timeout) == (
        14400, 99, 5, 1, 77)
    assert (spec.name, spec.executor, spec.campaign) == ("main", "slurm", None)
    said = command(scripts[1])
    assert f"judge={tmp_path}/judge" in said
    assert '"$judge" --served-model-name judge-70b --tensor-parallel-size 2' in said
    assert "source /envs/j/bin/activate" in said


def test_the_jobs_of_a_group(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path)
    spec, scripts = serve(workspace, "judge-70b")
    script = tmp_path / "worker.sh"
    script.write_text(scripts[1])
    options = directives(script)
    assert options["job-name"].startswith("serve-main-1-")
    assert options["output"] == f"{tmp_path}/logs/fleets/main/worker-1_%A_%a.out"
    assert options["error"] == f"{tmp_path}/logs/fleets/main/worker-1_%A_%a.err"
    assert options["signal"] == f"B:USR2@{int(lead_of(spec.groups[0]))}"
    assert (options["gres"], options["partition"], "requeue" in options) == ("gpu:2", "gpu", True)
    assert "array" not in options
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    assert spec.groups[0].script == str(tmp_path / ".flock-hpc/fleets/main/worker_1.sh")
    assert "--fleet main" in scripts[1]


def test_two_fleets_of_a_name_have_other_jobs(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path)
    (one, first), (two, second) = serve(workspace, "judge-70b"), serve(workspace, "judge-70b")
    assert one.id != two.id
    assert first[1].split("--job-name=")[1].split("\n")[0] != second[1].split("--job-name=")[1].split("\n")[0]
    assert one.print == two.print


def test_what_decides_what_is_served_is_in_the_print(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path)
    before = serve(workspace, "judge-70b")[0].print
    assert serve(workspace, "judge-70b", least=4, most=9, name="x")[0].print == before
    judge = {**workspace.settings.judge.model_dump(), "server": {"args": ["--seed", "2"]}}
    assert serve(make_workspace(tmp_path, judge=judge), "judge-70b")[0].print != before
    make_model(tmp_path / "judge", config__json=b'{"architectures": ["Y"], "x": 1}')
    assert serve(workspace, "judge-70b")[0].print != before


def test_a_candidate_has_the_settings_of_answers(tmp_path: Path) -> None:
    make_model(tmp_path / "m1")
    generate = {"path": str(tmp_path / "{model}"), "slurm": {"gpus": 1, "time": "01:00:00"},
                "server": {"args": ["--max-num-seqs", "7"]}, "models": {"m1": {"args": ["--own", "1"]}}}
    spec, scripts = serve(workspace_of(tmp_path, generate=generate), "m1")
    [group] = spec.groups
    assert (group.model, group.gpus, group.time_limit, group.settings) == ("m1", 1, 3600, "generate")
    said = command(scripts[1])
    assert f"judge={tmp_path}/m1" in said
    assert "--served-model-name m1" in said
    assert said.index("--max-num-seqs 7") < said.index("--own 1")


def test_adapters_of_one_base_share_servers(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base")
    for name, rank in (("a1", 8), ("a2", 30), ("b1", 8)):
        make_adapter(tmp_path / name, base if name[0] == "a" else make_model(tmp_path / "other"), rank)
    workspace = workspace_of(tmp_path, generate={"path": str(tmp_path / "{model}")})
    spec, scripts = serve(workspace, "a1", "b1", "judge-70b", "a2")
    assert [(group.model, group.also) for group in spec.groups] == [
        ("judge-70b", ()), ("base", ("a1", "a2")), ("other", ("b1",))]
    said = command(scripts[2])
    assert "--enable-lora --max-loras 3 --max-lora-rank 32" in said, "a slot that stays empty"
    assert '"base_model_name": "base"' in said
    assert spec.group_of("a2") == spec.groups[1]


def test_a_base_named_next_to_its_adapters_is_not_loaded_twice(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base")
    for name in ("a1", "a2"):
        make_adapter(tmp_path / name, base, 8)
    workspace = workspace_of(tmp_path, generate={
        "path": str(tmp_path / "{model}"), "models": {"mine": {"path": str(base)}}})
    for order in (("a1", "mine", "judge-70b", "a2"), ("a1", "a2", "mine", "judge-70b"),
                  ("mine", "a1", "a2", "judge-70b")):
        spec, scripts = serve(workspace, *order)
        assert [group.names for group in spec.groups] == [("judge-70b",), ("mine", "a1", "a2")], order
        said = command(scripts[2])
        assert f"judge={base}" in said
        assert "--served-model-name mine" in said
        assert '"base_model_name": "mine"' in said
        assert "--max-loras 3" in said
    spec, _ = serve(workspace, str(tmp_path / "a1"), str(tmp_path / "a2"), str(base))
    assert [group.names for group in spec.groups] == [("base", "a1", "a2")]


def test_a_base_with_other_options_than_its_adapters_has_servers_of_its_own(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base")
    make_adapter(tmp_path / "a1", base, 8)
    spec, _ = serve(workspace_of(tmp_path, generate={
        "path": str(tmp_path / "{model}"), "models": {"base": {"args": ["--own"]}}}), "a1", "base")
    assert [group.names for group in spec.groups] == [("base-base", "a1"), ("base",)]


def test_more_adapters_than_one_server_takes(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base")
    names = [f"a{number}" for number in range(5)]
    for name in names:
        make_adapter(tmp_path / name, base, 8)
    workspace = workspace_of(tmp_path, generate={"path": str(tmp_path / "{model}"), "max_loras": 2})
    spec, _ = serve(workspace, *names)
    assert [group.names for group in spec.groups] == [
        ("base", "a0", "a1"), ("base-base", "a2", "a3"), ("base-base-2", "a4")]


def test_folders_of_a_base_and_its_adapters_are_rehearsed_as_one_group(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base")
    for name in ("a1", "a2"):
        make_adapter(tmp_path / name, base, 8)
    workspace = workspace_of(tmp_path, generate={"kind": "rehearsal"})
    folders = [str(tmp_path / name) for name in ("a1", "a2", "base")]
    spec, scripts = serve(workspace, *folders)
    assert [group.names for group in spec.groups] == [("base", "a1", "a2")]
    assert "--model base --answers --also a1 --also a2" in command(scripts[1])
    assert [group.names for group in serve(workspace, *folders[:2])[0].groups] == [("base", "a1", "a2")]


def test_a_folder_and_a_name_on_a_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model(tmp_path / "elsewhere" / "tiny-1")
    workspace = workspace_of(tmp_path)
    monkeypatch.chdir(tmp_path / "elsewhere")
    for text in (f"{tmp_path}/elsewhere/tiny-1", f"{tmp_path}/elsewhere/tiny-1/", "./tiny-1", "tiny-1",
                 "elsewhere/tiny-1"):
        spec, scripts = serve(workspace, text)
        assert spec.groups[0].model == "tiny-1", text
        assert f"judge={tmp_path}/elsewhere/tiny-1" in command(scripts[1])
    spec, scripts = serve(workspace, "Qwen/Qwen2-0.5B")
    assert spec.groups[0].model == "Qwen2-0.5B"
    assert 'judge=Qwen/Qwen2-0.5B' in command(scripts[1])
    assert "--served-model-name Qwen2-0.5B" in command(scripts[1])


def test_rehearsals(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, judge={"kind": "rehearsal", "name": "j", "rehearsal": {"seed": 3}},
                               generate={"kind": "rehearsal", "models": {"a": {"base": "/b"}}})
    spec, scripts = serve(workspace, "j", "a", "owner/other")
    assert [(group.names, group.gpus) for group in spec.groups] == [
        (("j-rehearsal",), 0), (("b", "a"), 0), (("other",), 0)]
    assert "exec /py -m automate.serving.rehearsal --model j-rehearsal --seed 3" in command(scripts[1])
    assert "--model b --answers --also a" in command(scripts[2])
    assert "#SBATCH --gres" not in scripts[1]


def test_a_name_given_twice_is_one_group(tmp_path: Path) -> None:
    assert len(serve(workspace_of(tmp_path), "judge-70b", "judge-70b")[0].groups) == 1


@pytest.mark.parametrize(("models", "said"), [
    ((), "no model to serve"), (("judge-70",), "did you mean judge-70b?"), (("none",), "no model 'none'"),
    (("/no/such/folder",), "no model '/no/such/folder'"), (("a/b/c",), "no model 'a/b/c'"),
    (("..",), "can't be a model"),
    (("a\nb",), "can't be a model"), (("",), "can't be a model"), (("--x",), "can't be a model"),
    (("org/..",), "can't be a model"),
])
def test_what_is_no_model(models: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        serve(workspace_of(tmp_path), *models)


def test_two_under_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        make_model(tmp_path / folder / "m")
    with pytest.raises(ConfigError, match="one name: m"):
        serve(workspace_of(tmp_path), str(tmp_path / "x/m"), str(tmp_path / "y/m"))


def test_a_judge_of_somebody_else_is_not_served(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, judge={"kind": "openai", "name": "gpt", "base_url": "https://x/v1"})
    with pytest.raises(ConfigError, match="somebody else's"):
        serve(workspace, "gpt")


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    make_model(tmp_path / "half", model__safetensors=b"torn")
    workspace = workspace_of(tmp_path, generate={"path": str(tmp_path / "{model}")})
    with pytest.raises(ManyErrors) as found:
        serve(workspace, "half", "nowhere")
    assert "half" in str(found.value)
    assert "nowhere" in str(found.value)


def test_hostile_values_stay_values(tmp_path: Path) -> None:
    name = HOSTILE.replace("/", "")
    make_model(tmp_path / "odd %j" / name)
    spec, scripts = serve(workspace_of(tmp_path / "odd %j", generate={
        "environment": {}, "server": {"args": [HOSTILE]}}), f"{tmp_path}/odd %j/{name}")
    script = tmp_path / "odd %j" / "worker.sh"
    script.write_text(scripts[1].replace('exec vllm serve', "exec printf '<%s>'"))
    done = subprocess.run(["bash", str(script), "serve", "--uds", "x"], capture_output=True, text=True, cwd=tmp_path,
                          check=False)
    assert f"<{HOSTILE}>" in done.stdout, done.stderr
    assert f"<{spec.groups[0].model}>" in done.stdout
    assert not (tmp_path / "x").exists()
    assert "odd %%j" in directives(script)["output"]
