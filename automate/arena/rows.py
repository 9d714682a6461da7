"""Upstream's judgment rows: read from any dialect, and derived from the journal.

Never the truth itself for games that flock-hpc played: those are in the journal."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from automate.arena.games import Game, GameState, Recorded, prompt_sha
from automate.arena.prompts import Message
from automate.arena.verdict import ACCEPTED
from automate.journal import Record, read_jsonl

Render = Callable[[str, int], list[Message] | orjson.Fragment]
"""(uid, order) -> the rendered messages of that game, or their JSON."""


@dataclass
class FoundRows:
    """What a judgment file of upstream, the incumbent or flock-hpc holds."""

    records: list[Record] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    nulls: int = 0
    bad_labels: int = 0
    lines: int = 0


def _judgment(game: Mapping[str, Any]) -> str:
    judgment = game.get("judgment")
    if isinstance(judgment, dict):
        judgment = judgment.get("answer")
    return judgment if isinstance(judgment, str) else ""


def _prompt_sha(game: Mapping[str, Any]) -> str | None:
    old = _v01_prompt(game)
    if old is not None:
        return prompt_sha([{"role": "user", "content": old}])
    prompt = game.get("prompt")
    if not isinstance(prompt, list) or not prompt:
        return None
    try:
        return prompt_sha(prompt)
    except (KeyError, TypeError, UnicodeError):
        return None


def _v01_prompt(game: Mapping[str, Any]) -> str | None:
    prompt = game.get("user_prompt")
    return prompt if isinstance(prompt, str) and prompt else None


def said_to_judge(game: Mapping[str, Any]) -> str | None:
    """The user's message that a game's judge was given, or None where the game doesn't hold it."""
    prompt = game.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], dict):
        return str(prompt[-1].get("content"))
    return _v01_prompt(game)


def _import(row: Record, order: int, game: Mapping[str, Any], path: Path, line: int) -> Record:
    return {
        "source": "import", "model": row.get("model"), "judge": row.get("judge"),
        "uid": str(row.get("uid", row.get("question_id"))), "order": order,
        "baseline": row.get("baseline"), "category": row.get("category"),
        "outcome": "verdict", "label": game["score"], "judgment": _judgment(game),
        "prompt_sha": _prompt_sha(game), "game": dict(game), "from": f"{path.name}:{line}",
    }


def _row_games(row: Record) -> list[Any]:
    games = row.get("games")
    if not isinstance(games, list) or not isinstance(row.get("uid", row.get("question_id")), (str, int)):
        raise ValueError("no uid and games: not a judgment row")
    return games


def read_rows(path: Path, default_baseline: Callable[[str], str | None]) -> FoundRows:
    """Read a judgment file. Good games become import records; nulls and bad labels are counted and left due.

    v0.1 rows carry no baseline or category: `default_baseline(uid)` says which one the file is for.
    """
    found = FoundRows()
    if not path.is_file():
        return found
    lines = read_jsonl(path, need_newline=False)
    found.problems += [str(bad) for bad in lines.bad]
    for number, row in lines.records:
        found.lines += 1
        try:
            games = _row_games(row)
        except ValueError as error:
            found.problems.append(f"{path}:{number}: {error}")
            continue
        uid = str(row.get("uid", row.get("question_id")))
        if not isinstance(row.get("baseline"), str):
            row["baseline"] = default_baseline(uid)
        if len(games) < 2:
            found.problems.append(f"{path}:{number}: a row with {len(games)} game(s) instead of 2")
        for order, game in enumerate(games[:2], 1):
            if not isinstance(game, dict) or game.get("score") is None:
                found.nulls += 1
            elif not isinstance(game["score"], str) or game["score"] not in ACCEPTED:
                found.bad_labels += 1
            else:
                found.records.append(_import(row, order, game, path, number))
    return found


def unknown_to(recorded: Recorded, records: Iterable[Record]) -> list[Record]:
    """Imported games that the journal doesn't hold yet, and that flock-hpc didn't play itself."""
    played = {(str(r["uid"]), r["order"], r.get("prompt_sha")) for r in recorded.by_key.values()}
    known = {_fingerprint(r) for rows in recorded.imported.values() for r in rows}
    out = []
    for record in records:
        if (record["uid"], record["order"], record["prompt_sha"]) in played:
            continue
        mark = _fingerprint(record)
        if mark not in known:
            known.add(mark)
            out.append(record)
    return out


def _fingerprint(record: Record) -> tuple[object, ...]:
    text = hashlib.sha256(str(record.get("judgment")).encode("utf-8", "replace")).digest()
    return record.get("uid"), record.get("order"), record.get("baseline"), record.get("label"), text


def game_object(record: Record, messages: list[Message] | orjson.Fragment) -> dict[str, Any]:
    """Upstream's object of one game: score, judgment, prompt. A null game says its reason in `judgment`."""
    if record.get("source") == "import":
        raw = dict(record.get("game") or {})
        return raw if "prompt" in raw or "user_prompt" in raw or not messages else {**raw, "prompt": messages}
    judgment: dict[str, Any] = {"answer": record.get("judgment") or ""}
    if record["outcome"] != "verdict":
        judgment["reason"] = f"{record['outcome']}: {record.get('reason') or 'no reason given'}"
        return {"score": None, "judgment": judgment, "prompt": messages}
    return {"score": record["label"], "judgment": judgment, "prompt": messages}


def make_row(games: Sequence[Game], states: Sequence[GameState], judge: str, row_model: str,
             row_baseline: str, render: Render) -> bytes:
    """Upstream's line of one question from its two finished games, ended by a newline."""
    objects = []
    for game, state in zip(games, states, strict=True):
        record = state.record
        if record is None:
            raise ValueError(f"game {game.slot} is not finished")
        unverified = record.get("source") == "import" and record.get("prompt_sha") is None
        objects.append(game_object(record, [] if unverified else render(game.uid, game.order)))
    row = {
        "uid": games[0].uid, "category": games[0].category, "judge": judge, "model": row_model,
        "baseline": row_baseline, "games": objects,
    }
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
