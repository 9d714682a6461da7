"""Games that can't be counted yet, as the baseline has no answers so far: counted from the moment when they can be.

Never hides why not: `why` says it."""

from __future__ import annotations

from collections.abc import Sequence

from automate.arena.context import load_match
from automate.arena.counting.progress import ModelProgress, Progress
from automate.errors import FlockError
from automate.workspace import Workspace


class LateProgress:
    """`Progress` of these models as soon as their games can be counted; until then nothing is wanted or due."""

    def __init__(self, workspace: Workspace, models: Sequence[str], limit_questions: int | None = None) -> None:
        self.workspace = workspace
        self.names = tuple(models)
        self.progress: Progress | None = None
        self.why = ""
        self._limit = limit_questions
        self.refresh()

    def refresh(self) -> bool:
        """Take in what was written, changed answers too; True where anything was."""
        try:
            if self.progress is not None:
                return self.progress.refresh(inputs=True)
            self.progress = Progress(self.workspace, load_match(self.workspace), self.names, self._limit)
        except FlockError as error:
            self.progress, self.why = None, str(error)
            return False
        self.why = ""
        return True

    @property
    def models(self) -> dict[str, ModelProgress]:
        return {} if self.progress is None else self.progress.models

    @property
    def due(self) -> dict[str, int]:
        return {} if self.progress is None else self.progress.due

    @property
    def wanted(self) -> int:
        return 0 if self.progress is None else self.progress.wanted

    @property
    def finished(self) -> int:
        return 0 if self.progress is None else self.progress.finished
