"""How many games are to be played once answers are there that are due now: of these questions both games, always.

Only reads; a game that was played with an answer that goes is no game that was played."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from automate.arena.answering.candidates import candidate_of
from automate.arena.answering.due import given_up
from automate.arena.answering.recorded import read_file
from automate.arena.benchmark import Question
from automate.arena.context import baseline_map
from automate.errors import FlockError
from automate.workspace import Workspace

Uids = frozenset[str]


@dataclass
class Awaited:
    """Games of models some of whose answers, or of whose baseline's, are `coming` (names of models)."""

    workspace: Workspace
    questions: Sequence[Question]
    coming: Collection[str]
    _uids: dict[str, tuple[Uids, Uids]] = field(default_factory=dict)

    def games(self, model: str, due: Sequence[str] | None) -> int:
        """Games to be played when all answers are there.

        `due`: the question of each game that is due with the answers that are there; None where that is not known, as
        the baseline has none: all games are due then.
        """
        anew = {one.uid for one in self.questions} if due is None else self._anew(model)
        playable = anew - self._lost(model) if anew else anew  # files are read where they matter only
        return 2 * len(playable) + sum(uid not in anew for uid in due or ())

    def going(self, model: str, answered: Collection[str], due: Sequence[str]) -> int:
        """Games that were played, with an answer that goes. `answered`: questions with an answer of both."""
        anew = self._anew(model)
        return 2 * len(anew & set(answered)) - sum(uid in anew for uid in due)

    def _anew(self, model: str) -> set[str]:
        """Questions that get another answer of the model or of their baseline."""
        if not self.coming:
            return set()
        mine = self._uids_of(model)[0] if model in self.coming else frozenset()
        return {one.uid for one in self.questions if one.uid in mine or (
            (name := self._baseline(one)) in self.coming and one.uid in self._uids_of(name)[0])}

    def _lost(self, model: str) -> set[str]:
        """Questions that the model or their baseline was asked in vain."""
        mine = self._uids_of(model)[1]
        return {one.uid for one in self.questions if one.uid in mine or (
            (name := self._baseline(one)) and one.uid in self._uids_of(name)[1])}

    def _baseline(self, question: Question) -> str:
        names = baseline_map(self.workspace.settings.baseline)
        return names.get(question.category, names.get("*", ""))

    def _uids_of(self, model: str) -> tuple[Uids, Uids]:
        """Questions whose answer is not in a model's file yet or goes, and those that it was asked in vain."""
        if model not in self._uids:
            try:
                self._uids[model] = self._read(model)
            except (FlockError, OSError):  # nothing of it counts
                self._uids[model] = frozenset(one.uid for one in self.questions), frozenset()
        return self._uids[model]

    def _read(self, model: str) -> tuple[Uids, Uids]:
        weights = candidate_of(self.workspace, model)[0].weights
        there = read_file(self.workspace.answer_file(model), self.questions, weights).lines
        absent = [one for one in self.questions if one.uid not in there]
        lost = frozenset(given_up(self.workspace, absent, model)) if absent else frozenset()
        return frozenset(one.uid for one in absent) - lost, lost
