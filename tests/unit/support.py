"""What the unit tests share: small campaigns made up on the spot, and the way to real data where it is there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from automate.arena.benchmark import Answers, Question
from automate.arena.games import Game, JudgeIdentity, Match
from automate.arena.prompts import Prompts
from automate.journal import Record
from automate.settings import Settings
from automate.workspace import Workspace
from automate.yamlfile import Value

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).resolve().parent / "golden"
BASELINE = "base"
CATEGORIES = ("hard_prompt", "creative_writing")
LINE_SEPARATOR = "\u2028"
TEMPLATE = "Question: {QUESTION}\nFirst: {ANSWER_A}\nSecond: {ANSWER_B}"
IDENTITY = JudgeIdentity("judge", "weights", 0.0, 4096)


def real_data(*parts: str) -> Path:
    """A path below the folder of real test data; skips the test where there is none."""
    folder = Path(os.environ.get("FLOCK_HPC_TEST_DATA") or ROOT.parent / "shared" / "data")
    path = folder.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} not present: real-data tests skipped (FLOCK_HPC_TEST_DATA names the folder)")
    return path


def write_lines(path: Path, rows: Iterable[Mapping[str, object] | bytes]) -> Path:
    """Write a JSON-lines file; rows given as bytes go in as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(row if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows))
    return path


def make_settings(**values: Any) -> Settings:
    """Settings as flock-hpc.yaml would give them."""
    return Settings.model_validate(values)


def make_workspace(root: Path | str = "/campaign", **values: Any) -> Workspace:
    """A workspace that need not be on disk."""
    settings = make_settings(**values)
    return Workspace(Path(root), settings, settings.baseline if isinstance(settings.baseline, str) else BASELINE)


def make_prompts(template: str = TEMPLATE, **system: str) -> Prompts:
    """Prompts for the two categories."""
    words = {category: f"Judge {category}." for category in CATEGORIES} | system
    return Prompts(template, words, upstream=True, source="test", baselines={})


def make_questions(count: int = 4) -> list[Question]:
    """Questions of both categories by turns."""
    return [Question(f"q{number}", CATEGORIES[number % 2], f"prompt {number}") for number in range(count)]


def make_answers(model: str, uids: Iterable[str], **texts: str) -> Answers:
    """A model's answers to these questions; `texts` replaces some."""
    said = {uid: f"{model} on {uid}" for uid in uids} | texts
    return Answers(model, Path(f"{model}.jsonl"), said, model)


def make_match(questions: Sequence[Question] | None = None, *, judge: JudgeIdentity = IDENTITY,
               baselines: Mapping[str, str] | None = None, prompts: Prompts | None = None,
               answers: Mapping[str, Answers] | None = None) -> Match:
    """A match against one baseline, or against one for each category."""
    asked = make_questions() if questions is None else list(questions)
    named = baselines or {"*": BASELINE}
    theirs = {model: make_answers(model, (question.uid for question in asked)) for model in named.values()}
    return Match(asked, prompts or make_prompts(), named, {**theirs, **(answers or {})}, judge)


def record_of(game: Game, outcome: str = "verdict", **more: object) -> Record:
    """The record that the engine would write of this game."""
    record: Record = {
        "source": "engine", "key": game.key, "model": game.model, "uid": game.uid, "order": game.order,
        "baseline": game.baseline, "category": game.category, "prompt_sha": game.prompt_sha, "outcome": outcome,
        "label": "A>B" if outcome == "verdict" else None, "judgment": "My final verdict is: [[A>B]]",
    }
    return {**record, **more}


def nested(**values: Value) -> dict[str, Value]:
    """Settings as a nested mapping: judge__name="x" is {"judge": {"name": "x"}}."""
    out: dict[str, Value] = {}
    for dotted, value in values.items():
        here = out
        *parents, last = dotted.split("__")
        for parent in parents:
            below = here.setdefault(parent, {})
            assert isinstance(below, dict)
            here = below
        here[last] = value
    return out


def check_golden(name: str, text: str) -> None:
    """Compare with a file of golden/; UPDATE_GOLDEN=1 writes it anew, for a look at its diff."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path} differs; UPDATE_GOLDEN=1 writes it anew"
