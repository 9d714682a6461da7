"""A server's metrics: vLLM's names in Prometheus' text format, as numbers."""

from __future__ import annotations

import pytest

from automate.serving.metrics import ServerMetrics, parse_metrics

TEXT = r"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a \"b\" {c} \\"} 3.0
vllm:num_requests_running{engine="1",model_name="a"} 4.0
vllm:num_requests_waiting{engine="0",model_name="a"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="a",reason="capacity"} 99.0
vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="a"} 0.5
vllm:num_preemptions_total{engine="0",model_name="a"} 1.0
vllm:num_preemptions_created{engine="0",model_name="a"} 1.7e+09
vllm:prompt_tokens_total{engine="0",model_name="a"} 1.234567e+06
vllm:generation_tokens_total{engine="0",model_name="a"} 1000.0 1700000000
vllm:prefix_cache_queries_total{engine="0"} 100.0
vllm:prefix_cache_hits_total{engine="0"} 60.0
vllm:cache_config_info{block_size="16",engine="0",gpu_memory_utilization="0.9",num_gpu_blocks="1000"} 1.0
vllm:cache_config_info{block_size="16",engine="1",gpu_memory_utilization="0.9",num_gpu_blocks="500"} 1.0
vllm:e2e_request_latency_seconds_bucket{le="+Inf",model_name="a"} 7.0
process_resident_memory_bytes 1.5e+09
"""


def test_what_a_server_says() -> None:
    assert parse_metrics(TEXT) == ServerMetrics(
        running=7.0, waiting=0.0, preemptions=1.0, kv_usage=0.5, kv_tokens=24_000, prompt_tokens=1_234_567.0,
        output_tokens=1000.0, prefix_queries=100.0, prefix_hits=60.0)


def test_older_names_and_none_at_all() -> None:
    assert parse_metrics("vllm:gpu_cache_usage_perc 0.75\n").kv_usage == 0.75
    for text in ("", "<html>not metrics</html>\n# vllm:num_requests_running 1\n"):
        assert parse_metrics(text) == ServerMetrics()


@pytest.mark.parametrize("labels", ['block_size="16",num_gpu_blocks="None"', 'block_size="16"', ""])
def test_an_unknown_size_of_memory_is_none(labels: str) -> None:
    assert parse_metrics(f"vllm:cache_config_info{{{labels}}} 1.0\n").kv_tokens is None


def test_a_value_that_is_no_number_is_passed_over() -> None:
    assert parse_metrics("vllm:num_requests_running x\nvllm:num_requests_waiting 2\n") == ServerMetrics(waiting=2.0)
