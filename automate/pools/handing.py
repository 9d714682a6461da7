"""A round's record files, from where they were read last: each new line as a message of the job.

Never changes a record file, and never takes a torn tail for a record. A broken line is named and left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from automate.errors import StorageError
from automate.journal import parse_object, read_json, record_files, replace_file
from automate.pool_places import PoolPlaces
from automate.pools import records
from automate.pools.exchange import Exchange
from automate.pools.keys import process_id
from automate.pools.messages import Message
from automate.pools.round_records import Answer, WorkerLine, line_of

GROUP = 500
"""Records that are handed in with one commit."""
LONGEST = 4 * 1024 * 1024
"""Of a line, in bytes."""
NAMED = 20
"""Broken lines that are named; the rest is counted."""


@dataclass
class Taken:
    """What one handing-in of a round came to."""

    answers: int = 0
    strays: int = 0
    broken: int = 0
    named: list[str] = field(default_factory=list)

    def bad(self, where: str, why: str) -> None:
        self.broken += 1
        if len(self.named) < NAMED:
            self.named.append(f"{where}: {why}")


@dataclass(frozen=True)
class Line:
    """A whole line: file name, place in bytes, its bytes, and where the next one begins. `cut`: too long to be read."""

    file: str
    start: int
    text: bytes
    after: int
    cut: bool = False


def new_lines(path: Path, start: int) -> Iterator[Line]:
    """Whole lines from `start` on. Raises StorageError."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            place = start if start <= file.tell() else 0
            file.seek(place)
            while text := file.readline(LONGEST):
                cut = not text.endswith(b"\n") and len(text) == LONGEST
                rest = text
                while rest and not rest.endswith(b"\n"):
                    rest = file.readline(LONGEST)
                if not rest:
                    return  # a torn tail, or one that is being written
                yield Line(path.name, place, text, file.tell(), cut)
                place = file.tell()
    except OSError as error:
        raise StorageError.of(error, path, "read its records") from error


class Round:
    """One round that is being handed in."""

    def __init__(self, exchange: Exchange, places: PoolPlaces, name: str) -> None:
        self._exchange, self._places, self._name = exchange, places, name
        self._db = exchange.store.db
        self._longest = exchange.settings.field_bytes
        self._there: dict[str, tuple[str, str]] = {}
        self._group: list[Message] = []
        self.taken = Taken()

    def hand_in(self) -> Taken:
        """Give all new records to the router, in groups; remember how far after each."""
        hint = read_json(self._places.handed(self._name)) or {}
        reached = {name: place for name, place in hint.items() if type(place) is int and place >= 0}
        before = dict(reached)
        self._look()
        for path in record_files(self._places.answers(self._name)):
            if not path.is_file():  # a folder, a broken link, a pipe that would never end
                self.taken.bad(str(path), "no ordinary file")
                continue
            for line in new_lines(path, reached.get(path.name, 0)):
                self._add(line)
                reached[line.file] = line.after
                if len(self._group) >= GROUP:
                    self._send(reached)
        if reached != before:
            self._send(reached)
        return self.taken

    def _look(self) -> None:
        rows = self._db.execute("SELECT address, fleet, model FROM workers WHERE unregistered IS NULL").fetchall()
        self._there = {str(row["address"]): (str(row["fleet"]), str(row["model"])) for row in rows}

    def _add(self, line: Line) -> None:
        """Put a line's message into the group. A line that was taken before is left out."""
        if line.cut:
            return self._bad(line, f"a line of more than {LONGEST} bytes")
        if not line.text.strip():
            return None
        made = process_id("record", self._name, line.file, str(line.start), line.text.decode("utf-8", "replace"))
        if records.known(self._db, made):
            return None
        try:
            said = line_of(parse_object(line.text), self._longest)
        except ValueError as error:
            return self._bad(line, str(error))
        if isinstance(said, WorkerLine):
            self._worker(made, said)
        else:
            self._answer(made, said)
        return None

    def _bad(self, line: Line, why: str) -> None:
        self.taken.bad(f"{self._places.answers(self._name) / line.file}, byte {line.start}", why)

    def _message(self, made: str, worker: str, action: str, data: dict[str, object], time: int = 0) -> None:
        self._group.append(Message(made, worker, self._exchange.router, {"Action": action, "Round": self._name},
                                   json.dumps(data, ensure_ascii=False), timestamp=time, via="job"))

    def _worker(self, made: str, said: WorkerLine) -> None:
        if said.state == "joined":
            self._message(made, said.worker, "Register-Worker", {"model": said.model, "fleet": self._name})
            self._there[said.worker] = (self._name, said.model)
        elif self._there.get(said.worker, ("", ""))[0] == self._name:
            self._message(made, said.worker, "Unregister-Worker", {})
            del self._there[said.worker]

    def _answer(self, made: str, said: Answer) -> None:
        row = self._db.execute("SELECT model, dataset FROM inferences WHERE reference = ?",
                               (said.reference,)).fetchone()
        data: dict[str, object] = {"id": said.reference, "result": said.result, "started": said.started,
                                   "ended": said.ended}
        if row is not None:
            data |= {"model": row["model"], "dataset": row["dataset"]}
            if self._there.get(said.worker, ("", ""))[0] != self._name:
                self._message(process_id("register", made), said.worker, "Register-Worker",
                              {"model": row["model"], "fleet": self._name})
                self._there[said.worker] = (self._name, str(row["model"]))
        if said.error is not None:
            data["error"] = said.error
        if said.prompt is not None:
            data["prompt"] = said.prompt
        if said.scores:
            data["scores"] = list(said.scores)
        self._message(made, said.worker, "Inference-Response", data, said.ended)

    def _send(self, reached: dict[str, int]) -> None:
        if self._group:
            before = _strays(self._exchange)
            answers = 0
            for message, receipt in zip(self._group, self._exchange.receive(self._group), strict=True):
                if receipt.state in ("refused", "failed"):
                    self.taken.bad(f"round {self._name}", receipt.error or "refused")
                else:
                    answers += message.action == "Inference-Response"
            strays = _strays(self._exchange) - before
            self.taken.strays += strays
            self.taken.answers += max(answers - strays, 0)
            self._group = []
            self._look()
        replace_file(self._places.handed(self._name), json.dumps(reached).encode(), flush=False)


def _strays(exchange: Exchange) -> int:
    return int(exchange.store.db.execute("SELECT count(*) FROM strays").fetchone()[0])
