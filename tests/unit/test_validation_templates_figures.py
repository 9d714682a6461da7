"""Metrics from a loss and counts, what goes to the API, adapters' configs, and which rows share a batch."""

import json
import math
from pathlib import Path

import pytest

from automate.validation.modules.base import Job, SubmissionFault
from automate.validation.modules.lora import LoraConfig, LoraInput, LoraModule, adapter, batching, figures
from automate.validation.modules.lora.rows import Counts, Row


def rows_of(*lengths: int) -> list[Row]:
    return [Row((1,) * length, (0,) + (1,) * (length - 1)) for length in lengths]


def test_metrics_follow_from_the_mean_loss_and_the_counts() -> None:
    found = figures.metrics_of(2.0, Counts(tokens=30, bytes=100))
    assert found.loss == 2.0
    assert found.nll_token_nats_total == 60.0
    assert found.nll_token_bits_total == pytest.approx(60 / math.log(2), rel=1e-12)
    assert found.bpc == pytest.approx(0.6 / math.log(2), rel=1e-12)
    assert found.bppl == pytest.approx(2 ** (0.6 / math.log(2)), rel=1e-12)


@pytest.mark.parametrize(("loss", "counts"), [
    (math.nan, Counts(3, 3)), (math.inf, Counts(3, 3)), (2.0, Counts(3, 0)), (1e308, Counts(99, 1))])
def test_what_is_not_finite_is_999_and_can_be_sent(loss: float, counts: Counts) -> None:
    found = figures.metrics_of(loss, counts)
    assert found == figures.worst() and found.loss == found.bpc == 999.0
    json.dumps(found.model_dump(), allow_nan=False)


def test_a_perplexity_beyond_all_numbers_is_still_a_number() -> None:
    found = figures.metrics_of(5000.0, Counts(10, 10))
    assert found.bpc > 1024 and math.isfinite(found.bppl)


def test_both_names_on_the_wire(tmp_path: Path) -> None:
    module, found = LoraModule(LoraConfig()), figures.metrics_of(2.0, Counts(30, 100))
    assert module.payload(found, job=Job(tmp_path), gpu_type="H200") == found.model_dump()
    assert set(found.model_dump()) == {"loss", "bpc", "bppl", "nll_token_nats_total", "nll_token_bits_total"}
    old = module.payload(found, job=Job(tmp_path, metrics="old"), gpu_type="H200")
    assert old == {"loss": found.bpc, "gpu_type": "H200"}
    assert module.payload(figures.worst(), job=Job(tmp_path, metrics="old"), gpu_type="")["loss"] == 999.0


def test_the_client_s_config_is_a_config_and_others_are_not() -> None:
    LoraConfig.model_validate_json('{"per_device_eval_batch_size": 1, "fp16": true, "output_dir": "outputs", '
                                   '"remove_unused_columns": true}', strict=True)
    for wrong in ({"per_device_eval_batch_size": 2}, {"bf16": True}, {"token_budget": 0}, {"fp16": "yes"}):
        with pytest.raises(ValueError):
            LoraConfig.model_validate_json(json.dumps(wrong), strict=True)
    assert hash(LoraConfig()) == hash(LoraConfig())


def test_an_input_may_have_more_fields_but_none_less() -> None:
    fields = {"hg_repo_id": "a/b", "base_model": "yi", "context_length": 9, "max_params": 1,
              "validation_set_url": "https://x", "gpu_type": "A100", "other": {}}
    assert LoraInput.model_validate(fields).revision == "main"
    for name in ("hg_repo_id", "base_model", "context_length", "max_params", "validation_set_url"):
        with pytest.raises(ValueError):
            LoraInput.model_validate({key: value for key, value in fields.items() if key != name})


@pytest.mark.parametrize(("content", "cause"), [
    ("{", "malformed-adapter"), ("[]", "malformed-adapter"), ("\x00", "malformed-adapter"),
    ("[" * 99_999, "malformed-adapter"), ("{}", "missing-base"),
    ('{"base_model_name_or_path": ""}', "missing-base"), ('{"base_model_name_or_path": null}', "missing-base"),
    ('{"base_model_name_or_path": "a/B"}', "unsupported-base"),
    ('{"base_model_name_or_path": ["a/b"]}', "unsupported-base"),
    ('{"base_model_name_or_path": "/etc/passwd"}', "unsupported-base"),
    ('{"base_model_name_or_path": "a/b", "megatron_config": {"x": 1}}', "malformed-adapter"),
])
def test_an_adapter_s_config_is_the_submission_s_fault(content: str, cause: str, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(content)
    with pytest.raises(SubmissionFault) as caught:
        adapter.base_of(tmp_path, ("a/b",))
    assert caught.value.cause == cause


def test_an_adapter_names_its_base_and_a_whole_model_has_none(tmp_path: Path) -> None:
    assert adapter.base_of(tmp_path, ("a/b",)) is None
    with pytest.raises(SubmissionFault) as caught:
        adapter.need_whole(tmp_path, lora_only=True)
    assert caught.value.cause == "missing-adapter"
    with pytest.raises(SubmissionFault) as caught:
        adapter.need_whole(tmp_path, lora_only=False)
    assert caught.value.cause == "not-a-model"
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "a/b"}')
    assert adapter.base_of(tmp_path, ("a/b",)) == "a/b"
    with pytest.raises(SubmissionFault) as caught:
        adapter.need_weights(tmp_path)
    assert caught.value.cause == "missing-weights"


def test_batches_are_cut_from_the_longest_and_keep_to_the_budget() -> None:
    rows = rows_of(3, 50, 7, 50, 200, 1)
    left, batches = list(batching.split(rows, math.inf).together), []
    while left:
        size = batching.take(left, rows, 100)
        batches.append([len(rows[index].ids) for index in left[:size]])
        del left[:size]
    assert batches == [[200], [50, 50], [7, 3, 1]]
    assert all(len(batch) * max(batch) <= 100 or len(batch) == 1 for batch in batches)


@pytest.mark.parametrize(("config", "longest"), [
    ({"vocab_size": 3}, math.inf),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, math.inf),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8, "original_max_position_embeddings": 8192}}, math.inf),
    ({"output_router_logits": False}, math.inf),
    ({"output_router_logits": True}, 0),
    ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 0),
    ({"rope_scaling": {"type": "longrope", "long_factor": [1]}, "original_max_position_embeddings": 40}, 40),
    ({"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 60}}, 60),
    ({"rope_scaling": {"type": "longrope", "long_factor": [1]}}, 0),
])
def test_rows_go_alone_where_a_batch_would_change_their_figure(config: dict[str, object], longest: float) -> None:
    assert batching.longest_shared(config) == longest


def test_rows_beyond_the_length_go_alone_in_the_set_s_order() -> None:
    parts = batching.split(rows_of(5, 90, 7, 41, 40), 40)
    assert parts == batching.Split(together=(4, 2, 0), alone=(1, 3))
