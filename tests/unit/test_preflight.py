"""Preflight: every code is found where its cause is, all at once, and a sound campaign has no errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from automate.arena.preflight import check as preflight
from automate.arena.preflight.check import CODES, Finding, Level, Report, check
from automate.arena.preflight.findings import run_command, some
from automate.arena.preflight.judge import asked_gpus, estimated_weights
from automate.arena.preflight.machine import disk_findings
from automate.cluster.queue import JobStatus
from automate.errors import ClusterError
from automate.settings import Settings, Slurm
from automate.workspace import Workspace
from tests.unit.support import ROOT, make_settings, nested, real_data, write_lines

UIDS = [f"q{number}" for number in range(6)]
CATEGORIES = ("hard_prompt", "creative_writing")
GOOD = "model-a"
OTHER = "model-b"
MIB = 1 << 20
UTILS = 'JUDGE_SETTINGS = {"hard_prompt": {"baseline": "base", "system_prompt": "Judge."}}\n'
LLAMA = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "num_attention_heads": 8,
         "num_key_value_heads": 2, "hidden_size": 512, "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}
"""A model whose KV cache takes 1024 bytes a token."""


# Small campaigns
def answer(uid: str, text: str = "said", model: str = GOOD) -> dict[str, object]:
    messages = [{"role": "user", "content": "p"}, {"role": "assistant", "content": {"answer": text}}]
    return {"uid": uid, "model": model, "messages": messages}


def write_answers(workspace: Workspace, model: str, uids: Iterable[str] = UIDS, text: str = "said") -> Path:
    return write_lines(workspace.answer_file(model), [answer(uid, text, model) for uid in uids])


def write_api_config(workspace: Workspace, *names: str) -> None:
    workspace.api_config.parent.mkdir(parents=True, exist_ok=True)
    workspace.api_config.write_text("".join(f"{name}:\n  api_type: openai\n" for name in names), encoding="utf-8")


def bare(root: Path, settings: Settings) -> Workspace:
    return Workspace(root, settings, "base")


def campaign(root: Path, **values: object) -> Workspace:
    """A sound workspace: six questions, a baseline and two models; keys as in `nested`."""
    defaults: dict[str, object] = {"baseline": "base", "judge__kind": "rehearsal"}
    workspace = bare(root, make_settings(**nested(**{**defaults, **values})))  # type: ignore[arg-type]
    write_lines(workspace.questions, [
        {"uid": uid, "category": CATEGORIES[number % 2], "prompt": f"prompt {number}"}
        for number, uid in enumerate(UIDS)])
    for model in ("base", GOOD, OTHER):
        write_answers(workspace, model)
    return workspace


def with_judge(root: Path, weights: int = 512 * MIB, **values: object) -> Workspace:
    """The same with a judge's folder on disk, whose weights are `weights` bytes of nothing."""
    folder = root / "judge"
    folder.mkdir()
    (folder / "config.json").write_bytes(orjson.dumps(LLAMA))
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(weights)
    return campaign(root, **{"judge__kind": "vllm", "judge__path": str(folder), "judge__environment__setup": ["true"],
                             **values})


@dataclass
class FakeCluster:
    """A cluster that says `words` of every script, or raises `error`."""

    kind: str = "slurm"
    words: str | None = None
    error: ClusterError | None = None
    script: str = ""

    def submit(self, script: Path, name: str, indexes: Sequence[int], parallel: int | None,
               after: str | None = None, exclude: str | None = None) -> str:
        raise AssertionError("preflight submits nothing")

    def find(self, name: str, since: float) -> list[str]:
        return []

    def look(self, jobs: Sequence[str], names: Sequence[str] = ()) -> dict[str, JobStatus]:
        return {}

    def cancel(self, jobs: Sequence[str]) -> list[str]:
        return []

    def check(self, script: Path) -> str | None:
        self.script = script.read_text(encoding="utf-8")
        if self.error:
            raise self.error
        return self.words

    def log_path(self, pattern: str, job: str) -> Path:
        return Path(pattern)


Commands = Callable[[Sequence[str]], tuple[int, str]]


def one_gpu(arguments: Sequence[str]) -> tuple[int, str]:
    return 0, "GPU 0: NVIDIA Test\n" if arguments[0] == "nvidia-smi" else ""


def look(workspace: Workspace, models: Sequence[str] = (GOOD, OTHER), *, cluster: FakeCluster | None = None,
         executor: str = "local", run: Commands = one_gpu, limit: int | None = None,
         problems: Sequence[str] = ()) -> Report:
    return check(workspace, models, cluster=cluster, executor=executor, run=run, limit_questions=limit,
                 list_problems=problems)


def of(report: Report, code: str, level: Level | None = None) -> list[Finding]:
    return [f for f in report.findings if f.code == code and (level is None or f.level is level)]


def only(report: Report, code: str, level: Level) -> Finding:
    """The one finding of this code; it must have this level."""
    found = of(report, code)
    assert [f.level for f in found] == [level], found
    return found[0]


def errors(report: Report) -> set[str]:
    return {f.code for f in report.findings if f.level is Level.ERROR}


def on_path(monkeypatch: pytest.MonkeyPatch, folder: Path, *commands: str) -> None:
    """Let PATH hold these commands and nothing else."""
    folder.mkdir(exist_ok=True)
    for command in commands:
        (folder / command).write_text("#!/bin/sh\n")
        (folder / command).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


# The whole
def test_a_sound_campaign_has_no_errors(tmp_path: Path) -> None:
    report = look(campaign(tmp_path), cluster=FakeCluster("local"))
    assert report.ok
    assert report.ready == (GOOD, OTHER)
    assert report.blocked == ()
    assert report.fatal == ()
    assert not of(report, "FH104", Level.ERROR)
    assert "all 6 answers" in of(report, "FH104")[0].what


def test_preflight_leaves_nothing_behind(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    look(workspace, cluster=FakeCluster("local"))
    assert sorted(tmp_path.rglob("*")) == before


def test_all_problems_are_found_at_once_and_other_models_stay_ready(tmp_path: Path) -> None:
    workspace = campaign(tmp_path, judge__kind="vllm")
    write_answers(workspace, OTHER, UIDS[:2])
    report = look(workspace, (GOOD, OTHER, "absent"), cluster=FakeCluster("local", words="syntax error"))
    assert {"FH103", "FH104", "FH301", "FH503"} <= errors(report)
    assert report.ready == (GOOD,)
    assert report.blocked == (OTHER, "absent")
    assert not report.ok
    assert {f.code for f in report.fatal} >= {"FH301", "FH503"}
    assert all(f.model is None for f in report.fatal)


def test_findings_stand_in_order_of_their_codes(tmp_path: Path) -> None:
    codes = [f.code for f in look(campaign(tmp_path), ("absent", GOOD)).findings]
    assert codes == sorted(codes)


def test_every_code_of_the_source_is_in_the_table() -> None:
    folder = Path(str(preflight.__file__)).parent
    files = [*folder.glob("*.py"), *(folder.parents[1] / "validation").glob("preflight*.py")]
    sources = [path.read_text(encoding="utf-8") for path in files if path.name != "codes.py"]
    assert set(re.findall(r'"(FH\d{3})"', "".join(sources))) == set(CODES)


def test_every_code_is_tried() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*preflight*.py"))
    assert set(CODES) <= set(re.findall(r"FH\d{3}", tests))


def test_many_are_named_by_five_and_counted() -> None:
    assert some(UIDS) == "q0, q1, q2, q3, q4 and 1 more"
    assert some(UIDS[:5]) == "q0, q1, q2, q3, q4"


def test_a_command_is_run_from_the_root_without_a_shell() -> None:
    assert run_command([sys.executable, "-c", "import os; print(os.getcwd(), '$HOME')"]) == (0, "/ $HOME\n")
    assert run_command(["/nowhere/at-all"])[0] == 127


# Lists and answers
def test_double_and_bad_names_of_the_list(tmp_path: Path) -> None:
    twice = "list.txt:2: 'x' stands in the list twice; it is judged once"
    report = look(campaign(tmp_path), (GOOD, GOOD), problems=[twice])
    assert {f.level for f in of(report, "FH101")} == {Level.WARNING}
    assert report.ready == (GOOD,)
    report = look(campaign(tmp_path / "b"), problems=["twice/list.txt:3: '../x' can't be used: it holds a slash"])
    assert only(report, "FH101", Level.ERROR) not in report.fatal  # the other models can be judged
    assert not report.ok
    assert report.ready


def test_a_name_that_is_no_file_name_blocks_only_itself(tmp_path: Path) -> None:
    report = look(campaign(tmp_path), ("../../etc/passwd", GOOD))
    assert only(report, "FH101", Level.ERROR).model == "../../etc/passwd"
    assert report.ready == (GOOD,)
    assert look(campaign(tmp_path / "b"), ("a/b",), cluster=FakeCluster("local")).ready == ()


def test_a_model_unknown_to_api_config(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    write_api_config(workspace, "base", GOOD, "model-bb")
    finding = only(look(workspace), "FH102", Level.ERROR)
    assert finding.model == OTHER
    assert "did you mean 'model-bb'?" in finding.todo


def test_a_judge_unknown_to_api_config(tmp_path: Path) -> None:
    workspace = campaign(tmp_path, judge__kind="vllm")
    write_api_config(workspace, "base", GOOD, OTHER)
    assert only(look(workspace), "FH102", Level.WARNING).subject == workspace.settings.judge.name
    workspace = campaign(tmp_path / "b", judge__kind="vllm", judge__engine="upstream")
    write_api_config(workspace, "base", GOOD, OTHER)
    assert only(look(workspace), "FH102", Level.ERROR).model is None


def test_an_api_config_that_cannot_be_read_stops_only_upstreams_program(tmp_path: Path) -> None:
    for engine, level in (("builtin", Level.WARNING), ("upstream", Level.ERROR)):
        workspace = campaign(tmp_path / engine, judge__engine=engine)
        write_api_config(workspace, GOOD, GOOD)
        assert "twice" in only(look(workspace), "FH102", level).what


def test_no_answers(tmp_path: Path) -> None:
    finding = only(look(campaign(tmp_path), (GOOD, "absent")), "FH103", Level.ERROR)
    assert finding.model == "absent"
    assert "no answer file" in finding.what


def test_a_checkout_that_cannot_be_looked_at_is_told_in_full(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    unusable = replace(workspace, settings=make_settings(**nested(
        baseline="base", judge__kind="rehearsal", arena_hard="x" * 300)))
    report = look(unusable)
    assert {"FH103", "FH112", "FH201", "FH401"} <= errors(report)
    assert report.blocked == (GOOD, OTHER)


def test_incomplete_answers_are_counted_and_named(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    write_answers(workspace, GOOD, ["q1", "strange"])
    finding, = of(look(workspace), "FH104", Level.ERROR)
    assert finding.what == "no answer to 5 of 6 questions: q0, q2, q3, q4, q5"
    assert finding.model == GOOD


def test_with_a_limit_only_the_first_questions_count(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    write_answers(workspace, GOOD, UIDS[:2])
    write_answers(workspace, "base", UIDS[:3])
    assert look(workspace, limit=2).ok
    report = look(workspace, limit=3)
    assert report.blocked == (GOOD,)
    assert "1 of 3" in of(report, "FH104", Level.ERROR)[0].what


def test_answers_given_twice(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    write_answers(workspace, GOOD, [*UIDS, "q3", "q3", "q1"])
    finding = only(look(workspace), "FH105", Level.ERROR)
    assert finding.what == "more than one answer to 2 questions: q3, q1"


def test_bad_lines_are_named_by_file_and_line(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    path = write_lines(workspace.answer_file(GOOD), [*map(answer, UIDS), b"{torn\n", {"uid": "q9"}])
    finding = only(look(workspace), "FH106", Level.ERROR)
    assert f"{path}:7: " in finding.what
    assert f"{path}:8: " in finding.what
    assert "2 lines" in finding.what


def test_answers_of_another_bench(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    write_answers(workspace, GOOD, ["other1", "other2"])
    report = look(workspace)
    assert only(report, "FH107", Level.ERROR).model == GOOD
    assert not of(report, "FH104", Level.ERROR)


def test_an_empty_answer_file_is_incomplete_not_another_benchs(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    write_answers(workspace, GOOD, [])
    report = look(workspace)
    assert not of(report, "FH107")
    assert "no answer to 6 of 6" in of(report, "FH104", Level.ERROR)[0].what


def test_empty_answers_are_judged_and_counted(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    write_answers(workspace, GOOD, text=" \n")
    report = look(workspace)
    finding = only(report, "FH108", Level.WARNING)
    assert finding.what.startswith("6 empty answers")
    assert finding.model == GOOD
    assert report.ready == (GOOD, OTHER)


def test_rows_that_name_another_model(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    write_lines(workspace.answer_file(GOOD), [answer(uid, model="Model A") for uid in UIDS])
    assert "'Model A'" in only(look(workspace), "FH109", Level.NOTE).what


def test_nothing_to_judge(tmp_path: Path) -> None:
    report = look(campaign(tmp_path), ())
    assert only(report, "FH110", Level.ERROR) in report.fatal
    assert "no model is named" in of(report, "FH110")[0].what
    report = look(campaign(tmp_path / "b"), ("absent",))
    assert "no model can be judged" in only(report, "FH110", Level.ERROR).what


def test_the_baseline_is_not_judged_against_itself(tmp_path: Path) -> None:
    report = look(campaign(tmp_path), (GOOD, "base"))
    assert only(report, "FH111", Level.ERROR).model == "base"
    assert report.ready == (GOOD,)


def test_questions_that_cannot_be_read(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    workspace.questions.unlink()
    report = look(workspace, (GOOD, "absent"))
    assert only(report, "FH112", Level.ERROR) in report.fatal
    assert "FH103" in errors(report)
    assert "FH107" not in errors(report)


# The baseline
def test_a_baseline_without_answers(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    workspace.answer_file("base").unlink()
    assert only(look(workspace), "FH201", Level.ERROR) in look(workspace).fatal


def test_what_is_wrong_with_the_baseline_is_told_by_category(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    write_lines(workspace.answer_file("base"), [answer("q0"), answer("q0"), b"?\n", answer("q1"), answer("q2")])
    told = " | ".join(f.what for f in of(look(workspace), "FH201", Level.ERROR))
    assert "hard_prompt: 1 of 3 questions have no answer" in told
    assert "creative_writing: 2 of 3 questions have no answer" in told
    assert "base.jsonl:3: " in told
    assert "more than one answer to q0" in told


def test_a_baseline_for_one_category_needs_only_its_questions(tmp_path: Path) -> None:
    workspace = campaign(tmp_path, baseline={"hard_prompt": "base", "creative_writing": "base2"})
    write_answers(workspace, "base", UIDS[0::2])
    write_answers(workspace, "base2", UIDS[1::2])
    report = look(workspace)
    assert report.ok
    assert [f.level for f in of(report, "FH201")] == [Level.OK, Level.OK]


def test_a_baseline_unknown_to_api_config(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    write_api_config(workspace, GOOD, OTHER)
    report = look(workspace)
    assert only(report, "FH202", Level.WARNING).subject == "base"
    assert report.ok


def test_a_category_without_baseline(tmp_path: Path) -> None:
    report = look(campaign(tmp_path, baseline={"hard_prompt": "base"}))
    assert "creative_writing" in only(report, "FH203", Level.ERROR).what
    assert report.fatal


# The judge's folder
def test_no_path_to_the_judge(tmp_path: Path) -> None:
    assert only(look(campaign(tmp_path, judge__kind="vllm")), "FH301", Level.ERROR).model is None


@pytest.mark.parametrize(("path", "environment", "level", "says"), [
    ("/nowhere/judge", {}, Level.ERROR, "not a folder"),
    ("org/some-judge-70b", {}, Level.ERROR, "HF_HUB_OFFLINE=1"),
    ("org/some-judge-70b", {"HF_HUB_OFFLINE": "0"}, Level.WARNING, "asks the hub"),
    ("org/some-judge-70b", {"HF_HUB_OFFLINE": "1"}, Level.ERROR, "HF_HUB_OFFLINE=1"),
    ("/" + "long" * 1000, {}, Level.ERROR, ""),
])
def test_a_path_that_is_no_folder(tmp_path: Path, path: str, environment: dict[str, str], level: Level,
                                  says: str) -> None:
    report = look(campaign(tmp_path, judge__kind="vllm", judge__path=path, environment=environment))
    found = [f for f in report.findings if f.code in ("FH302", "FH303")]
    assert [f.level for f in found] == [level]
    assert says in found[0].what


def test_a_relative_path_is_told_in_full(tmp_path: Path) -> None:
    workspace = with_judge(tmp_path, judge__path="judge")
    assert str(tmp_path / "judge") in only(look(workspace), "FH302", Level.WARNING).todo


@pytest.mark.parametrize("config", [
    b"{", b"[]", b'{"num_hidden_layers": 1, "num_attention_heads": 0, "hidden_size": 1}'])
def test_a_folder_without_a_readable_config(tmp_path: Path, config: bytes) -> None:
    workspace = with_judge(tmp_path)
    (tmp_path / "judge" / "config.json").write_bytes(config)
    assert only(look(workspace), "FH303", Level.ERROR)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    workspace = with_judge(tmp_path, gpu__memory_gb=80)
    (tmp_path / "judge" / "model.safetensors").unlink()
    report = look(workspace)
    assert "no weights" in only(report, "FH303", Level.ERROR).what
    assert not of(report, "FH304")


# The judge's memory
def test_weights_and_context_that_fit(tmp_path: Path) -> None:
    report = look(with_judge(tmp_path, gpu__memory_gb=1))
    assert report.ok
    assert "weights 0.5 GiB" in only(report, "FH304", Level.OK).what
    assert "at most 133 mean games" in only(report, "FH305", Level.NOTE).what  # 409.6 MiB / (3150 x 1 KiB) = 133.1
    assert not of(report, "FH307")


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    finding = only(look(with_judge(tmp_path, 950 * MIB, gpu__memory_gb=1)), "FH304", Level.ERROR)
    assert "0.9 GiB" in finding.what
    assert "1 GPU of 1 GB gives 0.9 GiB" in finding.what
    assert "a quantised judge" in finding.todo


def test_a_context_that_does_not_fit_beside_the_weights(tmp_path: Path) -> None:
    workspace = with_judge(tmp_path, 921 * MIB, gpu__memory_gb=1)
    assert "at most 608" in only(look(workspace), "FH304", Level.ERROR).todo  # 0.6 MiB of 1 KiB a token, by 16
    shorter = with_settings(workspace, judge__server__max_model_len=512)
    assert only(look(shorter), "FH304", Level.OK)


def with_settings(workspace: Workspace, **values: object) -> Workspace:
    """The same workspace with some settings replaced."""
    data = workspace.settings.model_dump()
    for dotted, value in values.items():
        *parents, last = dotted.split("__")
        here = data
        for parent in parents:
            here = here[parent]
        here[last] = value
    return replace(workspace, settings=make_settings(**data))


@pytest.mark.parametrize(("args", "level"), [
    ([], Level.ERROR),
    (["--gpu-memory-utilization", "0.95"], Level.OK),
    (["--max-model-len=512"], Level.OK),
    (["--max-model-len", "auto"], Level.OK),
    (["-tp", "2"], Level.OK),
    (["--pipeline_parallel_size=2"], Level.OK),
    (["--data-parallel-size", "2"], Level.ERROR),
    (["--quantization", "fp8"], Level.WARNING),
])
def test_options_of_the_server_count(tmp_path: Path, args: list[str], level: Level) -> None:
    workspace = with_judge(tmp_path, 920 * MIB, gpu__memory_gb=1, judge__server__args=args)
    assert only(look(workspace), "FH304", level)


def test_room_for_few_games_only(tmp_path: Path) -> None:
    workspace = with_judge(tmp_path, 905 * MIB, gpu__memory_gb=1)  # 16.6 MiB are left
    finding = only(look(workspace), "FH305", Level.WARNING)
    assert "at most 5 mean games" in finding.what
    assert "fp8" in finding.todo
    narrow = with_settings(workspace, judge__server__args=["--kv-cache-dtype", "fp8"])
    assert "at most 10 mean games" in only(look(narrow), "FH305", Level.NOTE).what


@pytest.mark.parametrize(("slurm", "tensor", "level", "says"), [
    ({"gpus": 1}, 2, Level.ERROR, "over 2 GPUs, but a job has 1"),
    ({"gres": "gpu:h100:4"}, 8, Level.ERROR, "a job has 4"),
    ({"gpus": 0}, 2, Level.ERROR, "a job has 0"),
    ({"gpus": 4}, None, Level.WARNING, "1 of a job's 4"),
    ({"gpus": 4}, 2, Level.WARNING, "2 of a job's 4"),
    ({"gpus": 0}, None, Level.WARNING, "no GPU"),
    ({"gpus": 3}, 3, Level.ERROR, "8 attention heads"),
])
def test_gpus_asked_for_and_used(tmp_path: Path, slurm: dict[str, object], tensor: int | None, level: Level,
                                 says: str) -> None:
    workspace = with_judge(tmp_path, slurm=slurm, judge__server__tensor_parallel_size=tensor)
    assert says in only(look(workspace, executor="slurm"), "FH306", level).what


def test_gpus_that_go_together(tmp_path: Path) -> None:
    workspace = with_judge(tmp_path, slurm__gpus=2, judge__server__tensor_parallel_size=2)
    assert not of(look(workspace, executor="slurm"), "FH306")


def test_gpus_of_this_machine_are_counted(tmp_path: Path) -> None:
    workspace = with_judge(tmp_path, judge__server__tensor_parallel_size=2, slurm__gpus=2)
    assert "a job has 1" in only(look(workspace), "FH306", Level.ERROR).what


def test_how_many_gpus_a_job_asks_for() -> None:
    assert asked_gpus(Slurm(gres="gpu:a100:2(S:0),craynetwork:1")) == 2
    assert asked_gpus(Slurm(gres="gpu")) == 1
    assert asked_gpus(Slurm(gres="shard:4")) == 0
    assert asked_gpus(Slurm(options={"gpus-per-node": 4})) is None


def test_memory_that_is_not_known(tmp_path: Path) -> None:
    report = look(with_judge(tmp_path))
    assert only(report, "FH307", Level.NOTE)
    assert not of(report, "FH304")


def test_a_judge_too_large_by_its_name(tmp_path: Path) -> None:
    workspace = campaign(tmp_path, judge__kind="vllm", gpu__memory_gb=80)
    assert "65 GiB" in only(look(workspace), "FH309", Level.WARNING).what  # the default judge: 70B in FP8
    roomy = with_settings(workspace, judge__server__tensor_parallel_size=2)
    assert not of(look(roomy), "FH309")
    assert only(look(with_settings(roomy, judge__path="org/Judge-123B-Instruct")), "FH309", Level.WARNING)


@pytest.mark.parametrize(("name", "billions"), [
    ("neuralmagic-llama3.1-70b-instruct-fp8", 70), ("Qwen2.5-72B-Instruct-AWQ", 36), ("Mixtral-8x7B-v0.1", 112),
    ("judge-1.5b", 3), ("model-4bit", None), ("gpt-judge", None), ("llama-70b-w4a16", 35),
])
def test_weights_by_name(name: str, billions: int | None) -> None:
    assert estimated_weights(name) == (None if billions is None else billions * 10**9)


def test_a_context_longer_than_the_models(tmp_path: Path) -> None:
    workspace = with_judge(tmp_path, judge__server__max_model_len=8193)
    assert "8192" in only(look(workspace), "FH313", Level.WARNING).what


# Games and the context
def test_games_too_long_for_the_context(tmp_path: Path) -> None:
    workspace = campaign(tmp_path, judge__rehearsal={"context": 8192})
    write_lines(workspace.answer_file(GOOD), [
        *map(answer, UIDS[:3]), answer("q3", "word " * 20_000), answer("q4", "word " * 2_000),
        answer("q5", " " * 90_000)])
    finding = only(look(workspace), "FH308", Level.WARNING)
    assert finding.what.startswith("6 of 24 games have more bytes than 8192 tokens")
    assert "2 of them are too long even at 8 bytes a token" in finding.what  # 90,000 blanks are few tokens
    assert re.search(r"longest: model-a q3 \(10\d{4} bytes\), model-a q5 \(9\d{4} bytes\), model-a q4", finding.what)
    assert finding.model is None


def test_only_games_that_will_be_played_are_sized(tmp_path: Path) -> None:
    workspace = campaign(tmp_path, judge__rehearsal={"context": 8192})
    write_answers(workspace, GOOD, UIDS[:5], "word " * 20_000)
    assert not of(look(workspace), "FH308")
    write_lines(workspace.answer_file(GOOD), [*map(answer, UIDS[:5]), answer("q5", "word " * 20_000)])
    assert of(look(workspace), "FH308")
    assert not of(look(workspace, limit=5), "FH308")


@pytest.mark.parametrize(("values", "long"), [
    ({"judge__kind": "vllm"}, True),  # config.json's 8192
    ({"judge__kind": "vllm", "judge__server__max_model_len": 100_000}, False),
    ({"judge__kind": "openai", "judge__base_url": "https://host/v1"}, False),
    ({"judge__kind": "openai", "judge__base_url": "https://host/v1", "judge__context": 8192}, True),
    ({"judge__kind": "rehearsal"}, False),
])
def test_where_the_context_comes_from(tmp_path: Path, values: dict[str, Any], long: bool) -> None:
    workspace = with_judge(tmp_path, **values)
    write_answers(workspace, GOOD, text="word " * 3_000)
    assert bool(of(look(workspace), "FH308")) is long


# Other judges
@pytest.mark.parametrize("url", ["host/v1", "ftp://host/v1", "https://", "http:///v1", "http://[bad host"])
def test_an_address_that_is_none(tmp_path: Path, url: str) -> None:
    report = look(campaign(tmp_path, judge__kind="openai", judge__base_url=url))
    assert only(report, "FH310", Level.ERROR).subject == "judge.base_url"


def test_a_key_is_needed_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAID_KEY", raising=False)
    paid = {"judge__base_url": "http://host:1/v1", "judge__api_key_env": "PAID_KEY"}
    workspace = campaign(tmp_path, judge__kind="openai", **paid)
    assert "PAID_KEY" in only(look(workspace), "FH310", Level.ERROR).what
    workspace.secrets.mkdir(parents=True)
    (workspace.secrets / "PAID_KEY").write_text("\n")
    assert "empty" in only(look(workspace), "FH310", Level.ERROR).what
    (workspace.secrets / "PAID_KEY").write_text("hunter2\n")
    report = look(workspace)
    assert not of(report, "FH310")
    assert "hunter2" not in repr(report)
    (workspace.secrets / "PAID_KEY").unlink()
    monkeypatch.setenv("PAID_KEY", "hunter2")
    assert look(workspace).ok


def test_a_rehearsal_says_that_it_is_one(tmp_path: Path) -> None:
    assert "mean nothing" in only(look(campaign(tmp_path)), "FH311", Level.NOTE).what


@pytest.mark.parametrize(("options", "says"), [
    ({"latncy": 1}, "did you mean 'latency'?"),
    ({"zzzz": 1}, "it has: latency"),
    ({"model": "x"}, ""),
    ({"latency": "soon"}, "soon"),
    ({"no_label": 2}, "not a share"),
    ({"no_label": True}, "expected one argument"),
    ({"sticky": "yes"}, "switch"),
    ({"no_label": 0.6, "wrong_label": 0.6}, "add up to more than 1"),
])
def test_rehearsal_options_that_would_stop_the_judge(tmp_path: Path, options: dict[str, object], says: str) -> None:
    finding = only(look(campaign(tmp_path, judge__rehearsal=options)), "FH312", Level.ERROR)
    assert says in finding.what + finding.todo


def test_rehearsal_options_that_are_right(tmp_path: Path) -> None:
    options = {"latency": 0.1, "load-seconds": "2", "sticky": True, "die_while_loading": False, "kv_tokens": None}
    assert look(campaign(tmp_path, judge__rehearsal=options)).ok


# Prompts
def write_checkout(workspace: Workspace, template: str, utils: str = UTILS) -> None:
    for path, text in ((workspace.bench_settings, f"prompt_template: {template}\n"), (workspace.judge_utils, utils)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_prompts_that_cannot_be_used(tmp_path: Path) -> None:
    workspace = campaign(tmp_path, judge__rehearsal={"context": 100})
    write_checkout(workspace, '"{QUESTION}\\\\n{ANSWER_A}"')
    finding = only(look(workspace), "FH401", Level.ERROR)
    assert "backslash-n" in finding.what
    assert "{ANSWER_B}" in finding.what
    assert str(workspace.bench_settings) in finding.subject


def test_prompts_that_are_not_arena_hards(tmp_path: Path) -> None:
    assert "not Arena-Hard's prompt" in only(look(campaign(tmp_path)), "FH402", Level.NOTE).what


def test_a_category_without_prompt(tmp_path: Path) -> None:
    workspace = campaign(tmp_path, judge__rehearsal={"context": 100})
    write_checkout(workspace, '"{QUESTION} {ANSWER_A} {ANSWER_B}"')
    report = look(workspace)
    assert "creative_writing" in only(report, "FH403", Level.ERROR).what
    assert not of(report, "FH402")


def test_what_upstreams_program_cannot_do(tmp_path: Path) -> None:
    workspace = campaign(tmp_path, judge__engine="upstream")
    assert "gen_judgment.py" in only(look(workspace), "FH404", Level.ERROR).what
    write_checkout(workspace, '"{QUESTION} {ANSWER_A} {ANSWER_B}"', UTILS.replace('"base"', '"o3-mini"'))
    workspace.gen_judgment.touch()
    told = [f.what for f in of(look(workspace, limit=2), "FH404", Level.ERROR)]
    assert any("'o3-mini'" in what for what in told)
    assert any("--limit-questions" in what for what in told)


# The machine
def test_commands_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = campaign(tmp_path)
    on_path(monkeypatch, tmp_path / "bin")
    report = look(workspace, executor="slurm", cluster=FakeCluster())
    assert {f.subject for f in of(report, "FH501", Level.ERROR)} == {"sbatch", "squeue"}
    assert not of(report, "FH503")
    assert only(look(workspace, cluster=FakeCluster("local")), "FH501", Level.ERROR).subject == "bash"
    on_path(monkeypatch, tmp_path / "bin", "sbatch", "squeue", "bash")
    assert not of(look(workspace, executor="slurm"), "FH501")
    assert not of(look(workspace), "FH501")


def test_the_servers_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, tmp_path / "bin", "bash", "sbatch", "squeue")
    workspace = with_judge(tmp_path, judge__environment__setup=[])
    assert "'vllm'" in only(look(workspace), "FH501", Level.ERROR).what
    assert only(look(workspace, executor="slurm"), "FH501", Level.WARNING)
    assert not of(look(with_settings(workspace, judge__environment__modules=["CUDA"])), "FH501")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "vllm").touch(mode=0o755)
    assert not of(look(with_settings(workspace, judge__environment__variables={"PATH": str(mine)})), "FH501")
    assert "'conda'" in only(look(with_settings(workspace, judge__environment__conda="x")), "FH501", Level.ERROR).what


def test_the_servers_virtual_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, tmp_path / "bin", "bash")
    venv = tmp_path / "venv" / "bin"
    workspace = with_judge(tmp_path, judge__environment__setup=[], judge__environment__venv=str(venv.parent))
    assert "bin/activate" in only(look(workspace), "FH501", Level.ERROR).what
    venv.mkdir(parents=True)
    (venv / "activate").touch()
    assert "no 'vllm'" in only(look(workspace), "FH501", Level.ERROR).what
    (venv / "vllm").touch(mode=0o755)
    assert not of(look(workspace), "FH501")


def test_the_servers_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, tmp_path / "bin", "bash", "apptainer")
    workspace = with_judge(tmp_path, judge__environment__setup=[], judge__environment__container="/none/vllm.sif")
    assert "/none/vllm.sif" in only(look(workspace), "FH501", Level.ERROR).what
    remote = with_settings(workspace, judge__environment__container="docker://vllm/vllm-openai")
    assert not of(look(remote), "FH501")


def test_an_interpreter_that_cannot_import_the_engine(tmp_path: Path) -> None:
    def run(arguments: Sequence[str]) -> tuple[int, str]:
        assert arguments == [sys.executable, "-c", "import automate"]
        return 1, "Traceback\nModuleNotFoundError: No module named 'automate'\n"

    report = look(campaign(tmp_path), run=run)
    assert only(report, "FH502", Level.ERROR).what.endswith("No module named 'automate'")
    assert report.fatal


def test_what_the_cluster_says_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, tmp_path / "bin", "sbatch", "squeue")
    workspace = campaign(tmp_path, slurm__partition="gone")
    cluster = FakeCluster()
    assert only(look(workspace, executor="slurm", cluster=cluster), "FH503", Level.OK)
    assert "#SBATCH --partition=gone" in cluster.script
    assert GOOD in cluster.script
    words = "sbatch: error: invalid partition specified: gone"
    finding = only(look(workspace, executor="slurm", cluster=FakeCluster(words=words)), "FH503", Level.ERROR)
    assert words in finding.what
    assert "slurm.partition" in finding.todo
    down = FakeCluster(error=ClusterError("no answer within 60 s", where="sbatch"))
    assert "no answer" in only(look(workspace, executor="slurm", cluster=down), "FH503", Level.ERROR).what
    assert only(look(workspace, ("absent",), executor="slurm", cluster=FakeCluster()), "FH503", Level.OK)


def test_a_template_that_cannot_be_rendered(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    workspace.templates.mkdir()
    (workspace.templates / "judge_batch.sh.j2").write_text("{{ unheard_of }}")
    assert "unheard_of" in only(look(workspace, cluster=FakeCluster("local")), "FH503", Level.ERROR).what


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    workspace.scripts.write_text("a file in the folder's place")
    finding = only(look(workspace), "FH504", Level.ERROR)
    assert finding.subject == str(workspace.scripts)


def test_disk_space() -> None:
    free = {"/a": 200_000, "/b": 40_000, "/c": 20_000}
    found = {f.subject: f.level for f in disk_findings(2, 10_000, free)}  # 40 kB are needed
    assert found == {"/b": Level.WARNING, "/c": Level.ERROR}
    assert {f.code for f in disk_findings(2, 0, free)} == {"FH505"}
    assert list(disk_findings(2, 50_000, {"/full": 0})) == []


def test_a_vllm_judge_on_a_machine_without_gpu(tmp_path: Path) -> None:
    def run(arguments: Sequence[str]) -> tuple[int, str]:
        return (127, "") if arguments[0] == "nvidia-smi" else (0, "")

    assert only(look(with_judge(tmp_path), run=run), "FH506", Level.WARNING)
    assert not of(look(campaign(tmp_path / "b"), run=run), "FH506")


# Real data
def test_real_answers(tmp_path: Path) -> None:
    data = real_data("arena-hard-auto")
    empty = {"step6000": 328, "step12000": 204, "step48000": 169}
    models = [f"tulu3-8b-rank64-alpha1e5-001-{step}" for step in empty]
    workspace = bare(tmp_path, make_settings(**nested(judge__kind="rehearsal", judge__rehearsal={"context": 16_384})))
    workspace.bench.mkdir(parents=True)
    (workspace.arena_hard / "config").symlink_to(data / "config")
    for path in (workspace.questions, workspace.answers):
        path.symlink_to(data / "data" / workspace.settings.bench / path.name)
    report = look(workspace, models)
    assert report.ok
    assert report.ready == tuple(models)
    assert of(report, "FH104")[0].what == "3 of 3 have all 750 answers"
    assert [f.what.split()[0] for f in of(report, "FH108")] == [str(count) for count in empty.values()]
    assert "step48000 510f53828ef248ad (195107 bytes)" in only(report, "FH308", Level.WARNING).what
    assert "; 0 of them" in of(report, "FH308")[0].what


def test_the_bundled_example_is_sound(tmp_path: Path) -> None:
    example = ROOT / "configs" / "example"
    workspace = bare(tmp_path, make_settings(**nested(
        baseline="example-baseline", judge__kind="rehearsal", arena_hard=str(example / "arena-hard-auto"))))
    assert not {c for c in errors(look(workspace, ["example-final", "example-step1000"])) if c < "FH5"}
