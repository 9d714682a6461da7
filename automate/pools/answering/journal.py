"""The record files of a round, as the job that answers it reads and writes them: one file a start of a job.

Never writes a reference twice, and never changes a record."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from automate.journal import RecordWriter, fresh_name, read_journal
from automate.pool_places import PoolPlaces
from automate.pools.round_records import Answer, Work, WorkerLine, answer_of, worker_record


def recorded(places: PoolPlaces, name: str) -> set[str]:
    """References of a round that have a whole record. Raises StorageError."""
    found = set()
    for _, record in read_journal(places.answers(name)).records:
        if record.get("kind", "answer") == "answer":
            try:
                found.add(answer_of(record).reference)
            except ValueError:
                continue  # it is no answer: the line is asked again
    return found


def due(work: Sequence[Work], known: Collection[str]) -> list[Work]:
    """What is left to answer: wanted minus recorded, in the order of the work, each reference once."""
    seen, left = set(known), []
    for line in work:
        if line.reference not in seen:
            seen.add(line.reference)
            left.append(line)
    return left


class Journal:
    """This start's own record file. Context manager; closing flushes it."""

    def __init__(self, places: PoolPlaces, name: str) -> None:
        self._writer = RecordWriter(places.answers(name) / f"{fresh_name()}.jsonl")
        self.answers = 0

    def answer(self, answer: Answer) -> None:
        """Append an answer. Raises StorageError."""
        self._writer.append({"kind": "answer", **vars(answer)})  # as answer_record, which copies deeply
        self.answers += 1

    def worker(self, line: WorkerLine) -> None:
        """Append that a worker joined or left. Raises StorageError."""
        self._writer.append(worker_record(line.worker, line.model, line.state))

    def sync(self) -> None:
        """Ask the file system to keep what was written. Raises StorageError."""
        self._writer.sync()

    def close(self) -> None:
        self._writer.close()
