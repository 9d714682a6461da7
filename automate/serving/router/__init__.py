"""One address over all workers of a fleet, with vllm-router as its data plane."""
