"""`validation test`: a module on local files, and what came out, told in words.

Never talks to the API, and needs no key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from automate.validation.catalogue import find
from automate.validation.inner.files import Outcome, Result
from automate.validation.trial import trial
from automate.validation_places import ValidationPlaces

_WORDS = {
    Outcome.COMPLETED: "completed: this would be reported",
    Outcome.PARTIAL: "the first step is done; the second needs the network",
    Outcome.FAILED: "failed: the submission's own fault, which would be reported",
    Outcome.RECOVERABLE: "recoverable: nothing would be reported, and it would be tried again",
    Outcome.UNUSABLE: "unusable: nothing would be reported until a person mends it",
}

ASSUMED: Mapping[str, Mapping[str, object]] = {
    "lora": {"base_model": "default", "context_length": 4096, "max_params": 10**12},
    "rl": {"max_params": 10**12},
    "llm_judge": {"base_model": "default", "context_length": 4096, "max_params": 10**12, "eval_args": {}},
}
"""Fields of an assignment that a trial of a shipped module can do without."""


def try_module(places: ValidationPlaces, module: str, *, model: Path | None, data: Path, base: Path | None,
               fields: Mapping[str, object], task_id: str | None, as_json: bool, say: Callable[[str], None]) -> int:
    """Run a module on local files; returns the exit status: 0 where metrics came out."""
    assumed = {name: value for name, value in ASSUMED.get(module, {}).items() if name not in fields}
    if assumed and not as_json:
        words = ", ".join(f"{name}={json.dumps(value)}" for name, value in assumed.items())
        say(f"assumed of the assignment: {words} (--field NAME=VALUE says otherwise)")
    result = trial(find(module, places), places, model=model, data=data, base=base, fields={**assumed, **fields},
                   task_id=task_id)
    if as_json:
        say(json.dumps(asdict(result), indent=2, ensure_ascii=False))
    else:
        for line in told(result):
            say(line)
    return 0 if result.outcome is Outcome.COMPLETED else 1


def told(result: Result) -> list[str]:
    """A result in words: outcome, reason, metrics, what would be sent."""
    lines = [_WORDS[result.outcome]]
    if result.reason:
        lines.append(f"  {result.cause}: {result.reason}" if result.cause else f"  {result.reason}")
    lines += [f"  {name} = {value!r}" for name, value in (result.metrics or {}).items()]
    lines += [f"  note: {note}" for note in result.notes]
    if result.payload is not None:
        lines.append(f"  sent as: {json.dumps(result.payload)}")
    lines.append(f"  {result.seconds:.1f} s on {result.gpu_type or 'cpu'}")
    return lines
