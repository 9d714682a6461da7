"""Damage done to answer and judgment files, as crashes, upstream's program and older scripts do it; counted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """The rows of a whole JSON-lines file."""
    return [orjson.loads(line) for line in path.read_bytes().split(b"\n") if line]


def write_rows(path: Path, rows: Sequence[Row], tail: bytes = b"") -> None:
    """Write rows, and a torn line behind them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows) + tail)


class Damage:
    """Damages rows of one file, each row in one way only; `seed` says which."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.rows = read_rows(path)
        self.random = random.Random(seed)
        self.left = list(range(len(self.rows)))
        self.random.shuffle(self.left)
        self.gone: set[int] = set()
        self.more: list[Row] = []
        self.tail = b""

    def _pick(self, count: int) -> list[int]:
        picked, self.left = self.left[:count], self.left[count:]
        assert len(picked) == count, "not so many rows"
        return picked

    def drop(self, count: int) -> None:
        """Rows that are not there any more."""
        self.gone.update(self._pick(count))

    def null(self, count: int) -> None:
        """One game of each: null, as upstream writes it after a failure of the API."""
        for place in self._pick(count):
            self.rows[place]["games"][self.random.randrange(2)] = None

    def unparsed(self, count: int) -> None:
        """One game of each: no label found in what the judge said."""
        for place in self._pick(count):
            game = self.rows[place]["games"][self.random.randrange(2)]
            game.update(score=None, judgment={"answer": "I can't say which is better."})

    def label(self, count: int, label: str = "A") -> None:
        """One game of each: a label that no leaderboard can score."""
        for place in self._pick(count):
            self.rows[place]["games"][self.random.randrange(2)]["score"] = label

    def one_game(self, count: int) -> None:
        """Rows with the first game only."""
        for place in self._pick(count):
            del self.rows[place]["games"][1:]

    def double(self, count: int) -> None:
        """Rows that stand there twice, word for word."""
        self.more += [self.rows[place] for place in self._pick(count)]

    def rebase(self, count: int, baseline: str) -> None:
        """Rows judged against another baseline."""
        for place in self._pick(count):
            self.rows[place]["baseline"] = baseline

    def ask(self, count: int) -> None:
        """Answers to an older text of the question."""
        for place in self._pick(count):
            self.rows[place]["messages"][0]["content"] += " (older)"

    def strange(self, count: int) -> None:
        """Rows more, of questions of another set."""
        self.more += [{**row, "uid": f"strange{number}"} for number, row in enumerate(self.rows[:count])]

    def tear(self) -> None:
        """The last write was cut off; its row is lost."""
        place = self._pick(1)[0]
        self.gone.add(place)
        self.tail = orjson.dumps(self.rows[place])[:-40]

    def write(self) -> bytes:
        """Write the damaged file; its bytes."""
        kept = [row for place, row in enumerate(self.rows) if place not in self.gone]
        write_rows(self.path, [*kept, *self.more], self.tail)
        return self.path.read_bytes()
