"""Random junk in judgments, answers and questions, with a fixed seed: there is always an answer, never a traceback."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from automate.cli.main import main
from tests.unit.reading_support import Row

LABELS = ("A>>B", "A>B", "A=B", "B>A", "B>>A", "A<B", "B<<A")
JUNK: tuple[object, ...] = (None, 1, -1, "", [], {}, "A", "x" * 50, {"a": 1}, True, 1.5, "\x1b[31m", "nul\x00", [None],
                            10**30, float("nan"))
WAYS: tuple[list[str], ...] = (
    [], ["--style-control"], ["--style-control", "length", "--json"], ["--category", "a"], ["--csv"],
    ["--markdown"], ["--baseline", "b1", "--style-control"], ["--compare", "m1", "m2"],
    ["--compare", "m1", "b1", "--style-control"], ["--compatible"], ["--compatible", "--style-control"],
    ["--compatible", "--style-control", "markdown"])


def junk_game(rng: random.Random) -> object:
    chance = rng.random()
    if chance < 0.6:
        return {"score": rng.choice(LABELS)}
    return {"score": rng.choice(JUNK), "judgment": rng.choice(JUNK)} if chance < 0.7 else rng.choice(JUNK)


def junk_row(rng: random.Random, model: str, number: int) -> Row:
    found: Row = {"uid": f"q{number}", "category": rng.choice("ab"), "judge": "j", "model": model,
                  "baseline": rng.choice(["b1", "b1", "b2"]),
                  "games": [junk_game(rng) for _ in range(2 if rng.random() < 0.95 else rng.randrange(4))]}
    return {name: rng.choice(JUNK) if rng.random() < 0.03 else value for name, value in found.items()
            if rng.random() > 0.02}


def junk_answer(rng: random.Random, number: int) -> Row:
    metadata: object = {"token_len": rng.choice([0, 1, 5, 100]), "header_count": {"h1": rng.choice([0, 0, 1])},
                        "list_count": {"ordered": rng.randrange(3)}, "bold_count": rng.choice([3, {"**": 2}, *JUNK])}
    return {"uid": f"q{number}", "metadata": metadata if rng.random() < 0.95 else rng.choice(JUNK)}


def write(path: Path, rng: random.Random, found: list[Row]) -> None:
    """Lines, of which some are cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(one, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass") for one in found]
    path.write_bytes(b"".join((line[:rng.randrange(len(line))] if rng.random() < 0.02 else line) + b"\n"
                              for line in lines))


@pytest.mark.parametrize("seed", range(6))
def test_junk(tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    rng = random.Random(seed)
    bench, count = tmp_path / "x", (1, 2, 5, 40, 40, 40)[seed]
    for model in ("m1", "m2", "b1", "we ird\x1b"):
        write(bench / "model_judgment" / "j" / f"{model}.jsonl", rng, [junk_row(rng, model, i) for i in range(count)])
    for model in ("m1", "m2", "b1", "b2"):
        write(bench / "model_answer" / f"{model}.jsonl", rng, [junk_answer(rng, i) for i in range(count)])
    if seed % 2:
        write(bench / "question.jsonl", rng, [{"uid": f"q{i + rng.randrange(2)}"} for i in range(count)])
    for way in WAYS:
        rounds = [] if "--compatible" in way else ["--rounds", "20"]
        status = main(["leaderboard", "--data", str(tmp_path), *rounds, *way])
        said = capsys.readouterr()
        assert status in (0, 1), way
        assert said.out or said.err, way
        assert "\x1b" not in said.out + said.err, way
        assert "nan" not in said.out.lower(), way
