"""A base beside its adapters on one real vLLM, with the options that a fleet gives: each answers as it does alone."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from automate.arena.answering.candidates import Candidate
from automate.arena.answering.scripts import group_command
from automate.campaign.fleets.sharing import shared_groups
from tests.rigs import vllm as rig
from tests.rigs.adapter import make_adapter
from tests.serving.test_rig import post
from tests.unit.support import make_workspace

NAMES = (rig.MODEL_NAME, "first", "second")


def options(root: Path) -> list[str]:
    """What a fleet's command for these models says of adapters."""
    asked = [Candidate(NAMES[0], rig.tiny_model(), weights="b")]
    for seed, name in enumerate(NAMES[1:], 1):
        make_adapter(root / name, rig.tiny_model(), rank=8, seed=seed)
        asked.append(Candidate(name, root / name, rig.tiny_model(), 8, "a"))
    [group] = shared_groups(asked, 8)
    command = group_command(make_workspace(root), group, "python")
    return command[command.index("--enable-lora"):command.index("--enable-prompt-tokens-details")]


async def answer(server: rig.TinyServer, model: str, text: str) -> str:
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 24,
                            "temperature": 0, "ignore_eos": True}
    status, reply = await post(server, "/v1/chat/completions", body)
    assert status == 200, reply
    return str(reply["choices"][0]["message"]["content"])


async def test_a_base_in_one_batch_with_its_adapters_gives_its_own_answers(tmp_path: Path) -> None:
    asked = [(model, f"question {number}") for number in range(4) for model in NAMES]
    with tempfile.TemporaryDirectory(prefix="fhpc-") as folder, \
            rig.TinyServer(Path(folder) / "s", options(tmp_path)) as server:
        await asyncio.to_thread(server.wait_ready)
        alone = [await answer(server, *one) for one in asked]
        together = await asyncio.gather(*(answer(server, *one) for one in asked))
    assert len({alone[0], alone[1], alone[2]}) == 3, "each of them says something of its own"
    assert together == alone
