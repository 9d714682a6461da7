"""The validator's own command with its own options: assignments fetched, run and reported, with tiny real models."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("onnx")

from automate.validation.assignments import State  # noqa: E402
from automate.validation.standin import Plan, StandIn, TaskPlan  # noqa: E402
from automate.validation.standin.datasets import RL_FEATURES, RL_VENUES, validation_set  # noqa: E402
from automate.validation.standin.hub import Fault, HubStandIn, Repository  # noqa: E402
from automate.validation.standin.judge import Judge, scored  # noqa: E402
from tests.unit.llm_judge_support import make_checkout  # noqa: E402
from tests.unit.test_validation_templates import stand_in as make_templates  # noqa: E402
from tests.validation import llm_judge_rig  # noqa: E402
from tests.validation.circle_rig import (  # noqa: E402
    ADAPTER,
    BASE,
    KEY,
    LORA,
    POLICY,
    ROOT,
    TOKEN,
    Circle,
    around,
    lora_words,
    repositories,
    tiny,
)
from tests.validation.test_rl import expected_reward, save_policy  # noqa: E402

SAME = 1e-4
NAMES = ("loss", "bpc", "bppl", "nll_token_nats_total", "nll_token_bits_total")


# --- the figures, computed here -------------------------------------------------------------------
@dataclass(frozen=True)
class Figures:
    """The protocol's `loss` (nats) and `bpc` (bits a byte), and the mean over all targets, which is neither."""

    loss: float
    bpc: float
    global_mean: float


@cache
def merged_model() -> Any:
    """The base in float64 with the adapter's product added to its weights, by hand."""
    from safetensors.torch import load_file
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(tiny() / "base", dtype=torch.float64)
    weights = load_file(tiny() / "adapter" / "adapter_model.safetensors")
    config = json.loads((tiny() / "adapter" / "adapter_config.json").read_text())
    for name in [one for one in weights if one.endswith("lora_A.weight")]:
        product = weights[name.replace("lora_A", "lora_B")].double() @ weights[name].double()
        layer = model.get_submodule(name.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
        layer.weight.data += config["lora_alpha"] / config["r"] * product
    return model.eval()


def pieces(row: Mapping[str, Any], default_system: str | None) -> Iterator[tuple[str, bool]]:
    """A conversation between ChatML's markers, and which parts are targets."""
    system = row.get("system", default_system)
    if system is not None:
        yield f"<|im_start|>system\n{system}<|im_end|>\n", False
    for turn in row["conversations"]:
        if turn["role"] == "user":
            yield f"<|im_start|>user\n{turn['content']}<|im_end|>\n<|im_start|>assistant\n", False
        else:
            yield f"{turn['content']}<|im_end|>\n", True


def by_hand(data: bytes, length: int, default_system: str | None = None) -> Figures:
    """Row by row without padding: the mean over rows of each row's token mean, times T, over ln 2 and B."""
    tokenizer = tokenizers.Tokenizer.from_file(str(tiny() / "base" / "tokenizer.json"))
    rows, targets, size = [], 0, 0
    for line in data.decode().splitlines():
        marked = [(token, target) for text, target in pieces(json.loads(line), default_system)
                  for token in tokenizer.encode(text, add_special_tokens=False).ids][:length]
        with torch.no_grad():
            odds = merged_model()(torch.tensor([[token for token, _ in marked]])).logits[0].log_softmax(-1)
        rows.append([-float(odds[at - 1, token]) for at, (token, target) in enumerate(marked) if target])
        said = [token for token, target in marked if target]
        targets += len(said)
        size += len(tokenizer.decode(said, skip_special_tokens=True).encode())
    loss = math.fsum(math.fsum(row) / len(row) for row in rows) / len(rows)
    return Figures(loss, loss * targets / math.log(2) / size, math.fsum(map(math.fsum, rows)) / targets)


# --- the stand-ins --------------------------------------------------------------------------------
def lora_task(number: int, **changes: Any) -> TaskPlan:
    """A task for which adapters are trained."""
    usual: dict[str, Any] = {"kind": "lora", "submissions": 1, "rows": 3, "repo": ADAPTER, "base_model": "yi",
                             "context_length": 500, "metrics": NAMES}
    return TaskPlan(number, **{**usual, **changes})


@contextmanager
def served(*tasks: TaskPlan, more: Mapping[str, Repository] | None = None) -> Iterator[tuple[StandIn, HubStandIn]]:
    """API and hub."""
    with StandIn(Plan(tasks=tasks, key=KEY)) as api, HubStandIn({**repositories(), **(more or {})},
                                                                 tokens=[TOKEN]) as hub:
        yield api, hub


def clean(circle: Circle) -> None:
    """What must hold after every circle that went well: the protocol kept, and no secret anywhere."""
    assert circle.api.violations == []
    assert circle.modules(), "no module was seen: its environment was not looked at"
    assert circle.leaks(KEY, TOKEN) == []


# --- lora -----------------------------------------------------------------------------------------
def test_the_command_of_the_specification_goes_round(tmp_path: Path) -> None:
    texts = make_templates(tmp_path / "checkout", system="Answer as a test does.")
    tasks = (lora_task(123, submissions=2, rows=6), lora_task(456, base_model="qwen1.5"))
    with served(*tasks) as (api, hub), Circle(tmp_path / "c", api, hub, lora_words(123, 456, debug=True),
                                              {"templates": str(texts)}, {"lora": LORA}) as circle:
        circle.until(circle.all_accepted)
        assert circle.end() == 0, circle.told()
        told = circle.log.read_text()
    apart = []
    for task, number, system in ((123, 0, None), (123, 1, None), (456, 0, "Answer as a test does. (qwen1.5)")):
        plan = next(one for one in tasks if one.id == task)
        expected = by_hand(validation_set(plan, number), plan.context_length, system)
        payload = circle.payload(task, number)
        assert set(payload) == set(NAMES)
        assert payload["loss"] == pytest.approx(expected.loss, rel=SAME)
        assert payload["bpc"] == pytest.approx(expected.bpc, rel=SAME)
        apart.append(abs(expected.global_mean / expected.loss - 1))
    assert max(apart) > 4 * SAME, "the mean over all targets would pass as well"
    assert {one.state for one in circle.spooled().values()} == {State.SUBMITTED}
    assert "stopped: told to by SIGTERM" in told
    assert {call.token for call in hub.calls} == {TOKEN}
    debug = "".join(path.read_text() for path in (circle.workspace / ".flock-hpc" / "validation" / "debug").iterdir())
    assert "X-Amz-Signature=" in debug
    assert not re.search("X-Amz-Signature=[0-9a-f]{8}", debug)
    assert list((circle.root / "tmp").glob("flock-validation-*")), "--debug keeps the scratch folders"
    clean(circle)


def test_a_submission_s_own_faults(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    config = json.loads((tiny() / "adapter" / "adapter_config.json").read_text())
    (other / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "someone/else"}))
    (other / "adapter_model.safetensors").write_bytes((tiny() / "adapter" / "adapter_model.safetensors").read_bytes())
    tasks = (lora_task(1, max_params=1000), lora_task(2, repo="trainer/gone"), lora_task(3, repo="trainer/other"))
    more = {"trainer/other": Repository.of_folder(other), "someone/else": repositories()[BASE]}
    with served(*tasks, more=more) as (api, hub), Circle(tmp_path / "c", api, hub, lora_words(1, 2, 3),
                                                         configs={"lora": LORA}) as circle:
        circle.until(circle.all_accepted)
        assert circle.end() == 0, circle.told()
    assert circle.payload(1)["loss"] == 999.0
    reported = {one.task_id: one.status for one in api.assignments.values()}
    assert reported == {"1": "completed", "2": "failed", "3": "failed"}
    causes = {one.task_id: {event.cause for event in one.history} for one in circle.spooled().values()
              if one.state is State.FAILED}
    assert {task: "unsupported-base" in found for task, found in causes.items()} == {"2": False, "3": True}
    assert len(circle.modules()) == 1  # the others need no job
    clean(circle)


def test_an_outage_of_the_hub_is_nobody_s_fault(tmp_path: Path) -> None:
    with served(lora_task(7)) as (api, hub):
        hub.faults.append(Fault("", times=5, status=503))
        with Circle(tmp_path / "c", api, hub, lora_words(7), configs={"lora": LORA}) as circle:
            circle.until(lambda: any(one.problem for one in circle.spooled().values()))
            assert {one.state for one in circle.spooled().values()} == {State.FETCHED}
            circle.until(circle.all_accepted)
            assert circle.end() == 0, circle.told()
    assert hub.faults[0].times == 0
    assert circle.payload(7)["loss"] == pytest.approx(by_hand(validation_set(lora_task(7), 0), 500).loss, rel=SAME)
    assert ["hub" in {event.cause for event in one.history} for one in circle.spooled().values()] == [True]
    assert [one.attempts for one in circle.spooled().values()] == [0]  # no start was used up
    clean(circle)


def test_the_metrics_of_the_client_of_before(tmp_path: Path) -> None:
    task = lora_task(8, metrics=("loss", "gpu_type"))
    with served(task) as (api, hub), Circle(tmp_path / "c", api, hub, lora_words(8), {"metrics": "old"},
                                            {"lora": LORA}) as circle:
        circle.until(circle.all_accepted)
        assert circle.end() == 0, circle.told()
    payload = circle.payload(8)
    assert set(payload) == {"loss", "gpu_type"}
    assert payload["loss"] == pytest.approx(by_hand(validation_set(task, 0), 500).bpc, rel=SAME)
    clean(circle)


def test_local_files_need_no_key(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "lora.json").write_text(json.dumps(LORA))
    (tmp_path / "flock-hpc.yaml").write_text(json.dumps({"cluster": "local", "validation": {"manager": "current"}}))
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(validation_set(lora_task(9), 0))
    command = [sys.executable, "-m", "automate", "validation", "test", "lora", "--model", str(tiny() / "adapter"),
               "--base", str(tiny() / "base"), "--data", str(rows), "--field", "base_model=yi", "--field",
               "context_length=500", "--field", "max_params=1000000000", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=around(PYTHONPATH=str(ROOT)), capture_output=True, text=True,
                          timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    expected = by_hand(rows.read_bytes(), 500)
    assert result["outcome"] == "completed"
    assert result["payload"]["loss"] == pytest.approx(expected.loss, rel=SAME)
    assert result["payload"]["bpc"] == pytest.approx(expected.bpc, rel=SAME)


# --- the other modules ----------------------------------------------------------------------------
def test_rl_goes_round_with_keys_and_times_from_variables(tmp_path: Path) -> None:
    weights = numpy.random.default_rng(3).normal(size=(RL_FEATURES, RL_VENUES)).astype(numpy.float32)
    (tmp_path / "policy").mkdir()
    save_policy(tmp_path / "policy" / "model.onnx", weights, shape=("batch", RL_FEATURES))
    task = TaskPlan(31, kind="rl", submissions=2, rows=12, repo=POLICY, metrics=("average_reward",))
    variables = {"FLOCK_API_KEY": KEY, "HF_TOKEN": TOKEN, "TIME_SLEEP": "1", "ASSIGNMENT_LOOKUP_INTERVAL": "1"}
    more = {POLICY: Repository.of_folder(tmp_path / "policy")}
    with served(task, more=more) as (api, hub), Circle(tmp_path / "c", api, hub, ["rl", "--task_ids", "31"],
                                                       environ=variables) as circle:
        circle.until(circle.all_accepted)
        assert circle.end() == 0, circle.told()
    for number in range(2):
        (tmp_path / "set.npz").write_bytes(validation_set(task, number))
        with numpy.load(tmp_path / "set.npz") as arrays:
            expected = expected_reward(arrays["X"], arrays["Info"], weights)
        assert circle.payload(31, number) == {"average_reward": pytest.approx(expected, rel=SAME)}
    clean(circle)


def test_llm_judge_goes_round_in_two_steps(tmp_path: Path) -> None:
    base, name = llm_judge_rig.save_model(tmp_path / "files" / "base"), llm_judge_rig.BASE
    llm_judge_rig.save_adapter(tmp_path / "files" / "adapter", base)
    llm_judge_rig.edit(base / "generation_config.json", max_time=1.0)
    more = {name: Repository.of_folder(base), "trainer/chat": Repository.of_folder(tmp_path / "files" / "adapter")}
    task = TaskPlan(41, kind="llm_judge", submissions=1, rows=2, repo="trainer/chat", metrics=("score",), data={
        "eval_args": {"eval_model_list": ["judge-a"], "eval_require": 2, "prompt_id": 1}})
    words = ["llm_judge", *lora_words(41)[1:]]
    prompts = {"judge_prompts": str(make_checkout(tmp_path))}
    with Judge([scored(8, 0.5)]) as judge, served(task, more=more) as (api, hub), Circle(
            tmp_path / "c", api, hub, words, prompts, environ=judge.environ) as circle:
        circle.until(circle.all_accepted)
        assert circle.end() == 0, circle.told()
    assert circle.payload(41) == {"score": pytest.approx(0.4)}
    assert len(judge.calls) == 4  # two conversations, two calls each
    assert [one.environ.get("OPENAI_API_KEY") for one in circle.modules(1)] == [None]
    assert [one.environ.get("OPENAI_API_KEY") for one in circle.modules(2)] == [judge.key]
    assert [path for path in circle.leaks(judge.key) if not path.startswith("around ")] == []
    clean(circle)
