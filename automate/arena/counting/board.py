"""A model's games counted one record at a time, in a few kilobytes.

Says the same as `games.count` over `games.Recorded` of the same records, without keeping any of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from automate.arena.counting.keys import Wanted
from automate.arena.games import FAILURES, Match, ModelStatus
from automate.arena.verdict import ACCEPTED
from automate.journal import Record

# What a game is, one byte for each slot: those from OWN on are finished.
UNWANTED, FRESH, RETRYING, OWN, OWN_SHORT, ROW, ROW_UNVERIFIED, ROW_OTHER, ROW_BOTH, NULL = range(10)
"""NULL + n: without a verdict, for the reason FAILURES[n]."""
_KINDS = NULL + len(FAILURES)
_FINISHED = bytes(code >= OWN for code in range(256))
_DUE = bytes(code in (FRESH, RETRYING) for code in range(256))
_PAIR = bytes((FRESH, FRESH))
_COUNTS, _EXACT, _UNVERIFIED, _OTHER = 2, 4, 8, 16


class Board:
    """The states of a model's games. `codes` has two slots for each question: order 1, then order 2."""

    def __init__(self, wanted: Wanted, match: Match, uids: Mapping[str, int], attempts: int) -> None:
        """`uids`: position of each question that is looked at, which are the first ones."""
        self.wanted = wanted
        self.codes = bytearray(2 * len(uids))
        for position in wanted.positions:
            if position < len(uids):
                self.codes[2 * position:2 * position + 2] = _PAIR
        self._match = match
        self._uids = uids
        self._attempts = attempts
        self._failed: dict[int, int] = {}
        self._rows: dict[int, int] = {}
        self._other = bytearray(2 * len(uids))

    @cached_property
    def index(self) -> dict[bytes, int]:
        """Key (hex) -> slot of each wanted game."""
        return self.wanted.index(len(self._uids))

    def state(self) -> dict[str, Any]:
        """All that was counted, as JSON."""
        return {"codes": self.codes.hex(), "other": self._other.hex(),
                "failed": list(self._failed.items()), "rows": list(self._rows.items())}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state` of the same wanted games. Raises ValueError, KeyError or TypeError where it is none."""
        codes, other = bytearray.fromhex(state["codes"]), bytearray.fromhex(state["other"])
        failed, rows = ({int(slot): int(value) for slot, value in state[name]} for name in ("failed", "rows"))
        if len(codes) != len(self.codes) or len(other) != len(self.codes):
            raise ValueError("the state of another board")
        self.codes, self._other, self._failed, self._rows = codes, other, failed, rows

    def own(self, slot: int, short: bool) -> None:
        """A verdict of ours for a wanted game; the first one stands."""
        if self.codes[slot] not in (OWN, OWN_SHORT):
            self.codes[slot] = OWN_SHORT if short else OWN

    def add(self, record: Record) -> None:
        """Take one record in; of its texts nothing is needed."""
        order, key, outcome = record.get("order"), record.get("key"), record.get("outcome")
        if order not in (1, 2):
            return
        position = self._uids.get(str(record.get("uid")))
        place = None if position is None else 2 * position + int(order) - 1
        if record.get("source") == "import":
            if place is not None:
                self._other[place] = 1
                self._row(place, int(order), record)
            return
        if not isinstance(key, str):
            return
        slot = self.index.get(key.encode("utf-8", "replace"))
        if outcome == "verdict" and record.get("label") in ACCEPTED:
            if place is not None:
                self._other[place] = 1
            if slot is not None:
                self.own(slot, bool(record.get("short")))
        elif outcome in FAILURES and slot is not None:
            self._fail(slot, FAILURES.index(str(outcome)))

    def _fail(self, slot: int, reason: int) -> None:
        count = self._failed[slot] = self._failed.get(slot, 0) + 1
        if self.codes[slot] in (FRESH, RETRYING) or self.codes[slot] >= NULL:
            self.codes[slot] = NULL + reason if count >= self._attempts else RETRYING

    def _row(self, slot: int, order: int, record: Record) -> None:
        """A row of another program: the first with this very prompt counts, else the first that counts at all."""
        if self.codes[slot] == UNWANTED:
            return
        before = self._rows.get(slot, 0)
        prompt, texts = self.wanted.shas(slot // 2, order)
        sha, same = record.get("prompt_sha"), record.get("texts_sha")
        question = self._match.questions[slot // 2]
        counts = record.get("baseline") == self._match.baseline_of(question.category) and (
            sha in (None, prompt) or same == texts)
        if not counts or before & _EXACT or (before & _COUNTS and sha != prompt):
            return
        flags = (_UNVERIFIED if sha is None else 0) | (_OTHER if same is not None else 0)
        self._rows[slot] = _COUNTS | (_EXACT if sha == prompt else 0) | flags
        if self.codes[slot] not in (OWN, OWN_SHORT):
            self.codes[slot] = {0: ROW, _UNVERIFIED: ROW_UNVERIFIED, _OTHER: ROW_OTHER}.get(flags, ROW_BOTH)

    def is_own(self, position: int) -> bool:
        """Whether both games of a question have a verdict of ours, or are not wanted: no row can change them."""
        return all(code in (OWN, OWN_SHORT, UNWANTED) for code in self.codes[2 * position:2 * position + 2])

    @property
    def due(self) -> list[str]:
        """The question of each due game: once for each."""
        return [self._match.questions[slot // 2].uid for slot, due in enumerate(self.codes.translate(_DUE)) if due]

    @property
    def status(self) -> ModelStatus:
        """The counts."""
        codes = self.codes
        number = [codes.count(kind) for kind in range(_KINDS)]
        finished, due = codes.translate(_FINISHED), codes.translate(_DUE)
        both = int.from_bytes(finished[0::2], "big") & int.from_bytes(finished[1::2], "big")
        stale = int.from_bytes(due, "big") & int.from_bytes(self._other, "big")
        nulls = {reason: count for reason, count in zip(FAILURES, number[NULL:], strict=True) if count}
        return ModelStatus(
            model=self.wanted.model, wanted=len(codes) - number[UNWANTED], done=sum(number[OWN:NULL]), nulls=nulls,
            due=number[FRESH] + number[RETRYING], questions_done=both.bit_count(),
            unverified=number[ROW_UNVERIFIED] + number[ROW_BOTH], other_prompt=number[ROW_OTHER] + number[ROW_BOTH],
            short_labels=number[OWN_SHORT], stale=stale.bit_count(), retrying=number[RETRYING])
