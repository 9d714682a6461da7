"""`llm_judge` with real models on the CPU: generation, merging, both steps."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

from automate.validation.inner.files import PARTIAL, write_json  # noqa: E402
from automate.validation.modules.base import (  # noqa: E402
    RecoverableException,
)
from automate.validation.modules.llm_judge import MODULE, generation, loading  # noqa: E402
from automate.validation.modules.llm_judge.dataset import Item  # noqa: E402
from automate.validation.modules.llm_judge.schemas import LLMJudgeConfig, Partial  # noqa: E402
from automate.validation.standin.judge import Judge, failing, scored  # noqa: E402
from tests.unit.llm_judge_support import make_input  # noqa: E402
from tests.validation.llm_judge_rig import full_job, lora_job, validate  # noqa: E402

pytestmark = pytest.mark.usefixtures("short")


# --- answers ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("batch", [1, 3])
def test_an_adapters_answers_are_left_for_the_judges(tmp_path: Path, files: Path, batch: int) -> None:
    job = lora_job(tmp_path, files)
    left = validate(job, batch=batch, gen_require=2)
    write_json(tmp_path / PARTIAL, left)
    partial = Partial.model_validate(json.loads((tmp_path / PARTIAL).read_text()))
    assert [len(texts) for texts in partial.answers] == [5, 5]
    assert partial.references == ["w3", "w12", None, None, None]
    assert partial.conversations[0] == [{"role": "system", "content": None}, {"role": "user", "content": "w1 w2"}]
    assert any(text for texts in partial.answers for text in texts)
    assert job.notes == []


def test_sampling_is_the_protocols(tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = full_job(tmp_path, files)
    loaded = loading.load(job, 10**9)
    assert next(loaded.model.parameters()).dtype == torch.float32 and not loaded.model.training
    asked: list[Mapping[str, Any]] = []
    generate = loaded.model.generate

    def watched(**given: Any) -> Any:
        asked.append(given)
        return generate(**given)
    monkeypatch.setattr(loaded.model, "generate", watched)
    writer = generation.Writer(loaded, temperature=0.35, batch=2, say=lambda _: None)
    items = [Item(({"role": "system", "content": None}, {"role": "user", "content": text}), None, None)
             for text in ("w1", "w2 w3 w4", "w5")]
    assert len(writer.answers(items)) == 3
    given = {name: value for name, value in asked[0].items() if name not in ("input_ids", "attention_mask")}
    assert given == {"max_new_tokens": 6, "temperature": 0.35, "do_sample": True, "top_p": 0.8, "top_k": 20,
                     "pad_token_id": 1, "eos_token_id": 1}
    first, last = asked
    prompt = "system <eos> user w1 <eos> assistant quiet"
    assert loaded.tokenizer.decode(first["input_ids"][0][2:]) == prompt
    assert first["attention_mask"][0].tolist() == [0, 0, *[1] * 7] and last["attention_mask"].all()


def test_padding_changes_no_answer(tmp_path: Path, files: Path) -> None:
    """With one candidate at each step, a batch of different lengths gives what one at a time gives."""
    loaded = loading.load(full_job(tmp_path, files), 10**9)
    items = [Item(({"role": "user", "content": "w1 " * length},), None, None) for length in (1, 30, 7, 2)]
    said = []
    for batch in (1, 4):
        writer = generation.Writer(loaded, temperature=1e-4, batch=batch, say=lambda _: None)
        said.append(writer.answers(items))
    assert said[0] == said[1] and len(set(said[0])) > 1


def test_tools_reach_the_template_as_lists(tmp_path: Path, files: Path) -> None:
    loaded = loading.load(full_job(tmp_path, files), 10**9)
    writer = generation.Writer(loaded, temperature=1, batch=1, say=lambda _: None)
    tools = [{"type": "function", "function": {"name": "f"}}]
    for given in (tools, json.dumps(tools)):
        assert writer._prompt(1, Item(({"role": "user", "content": "w1"},), None, given)).startswith("T1 ")


def test_the_adapter_is_merged(tmp_path: Path, files: Path) -> None:
    merged = loading.load(lora_job(tmp_path, files), 10**9).model
    base = loading.load(full_job(tmp_path, files), 10**9).model
    assert type(merged) is type(base)
    name = "model.layers.0.self_attn.q_proj.weight"
    weights = [dict(model.named_parameters())[name] for model in (merged, base)]
    assert not torch.allclose(*weights)
    stored = peft.load_peft_weights(str(files / "adapter"))
    a, b = (stored[f"base_model.model.model.layers.0.self_attn.q_proj.lora_{which}.weight"] for which in "AB")
    assert torch.allclose(weights[0], weights[1] + b @ a * 2, atol=1e-5)  # alpha 8 over r 4


# --- the whole circle ---------------------------------------------------------------------------------
def test_both_steps_one_after_the_other(tmp_path: Path, files: Path) -> None:
    job = lora_job(tmp_path, files)
    left = json.loads(json.dumps(validate(job, prompt_id=2)))
    module = MODULE(LLMJudgeConfig(), job=job)
    given: dict[str, Any] = {"job": job, "sleep": lambda seconds: None, "seeds": random.Random(0)}
    down = Judge(lambda number, _: scored(8, 1) if number < 2 else failing(503))
    with down as judge, pytest.raises(RecoverableException):
        module.finish(make_input(prompt_id=2), left, environ=judge.environ, **given)
    with Judge([scored(8, 1)]) as judge:
        score = MODULE(LLMJudgeConfig(), job=job).finish(make_input(prompt_id=2), left, environ=judge.environ, **given)
    # two rows have an answer to be held against: two judges each; three have none and count by default, once
    assert len(judge.calls) == 2
    assert score.score == pytest.approx((4 * 8 + 3 * 2.5) / 7 / 10)
    assert module.payload(score, job=job, gpu_type="none") == {"score": score.score}
