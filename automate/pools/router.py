"""The router process: workers with their workload, inferences that wait, go out and come back.

Never starts a server and never talks to one; rounds.py hands what waits to the cluster."""

from __future__ import annotations

from collections.abc import Mapping

from automate.pools.exchange import Handler

HANDLERS: dict[str, Handler] = {}
"""Register-Worker, Unregister-Worker, Inference, Inference-Response, loadModel (and setModel), setMaxTokens,
setSystemPrompt, Credit-Notice (a paid Inference), Get-Workers, Info."""


def least(workloads: Mapping[str, int]) -> str | None:
    """The worker with the least workload, the first by name among equals; None where there is none."""
    raise NotImplementedError
