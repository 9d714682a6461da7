"""Where a bench's questions, answers and judgments lie: in a workspace's checkout, or in any Arena-Hard data folder.

Never reads what is in the files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from automate.errors import DataError, StorageError
from automate.names import name_problem
from automate.workspace import Workspace

OTHER_BASELINE = "compared_with_"
"""Judgments against another baseline than the usual one lie in a folder of this and the baseline's name."""

_MOST_NAMED = 12


def named(names: Iterable[str], most: int = _MOST_NAMED) -> str:
    """Names in one line, the first of them where they are many."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return (", ".join(listed[:most]) + more) if listed else "none"


@dataclass(frozen=True)
class BenchFolder:
    """The folder `<data>/<bench>` of Arena-Hard's layout."""

    path: Path

    @property
    def bench(self) -> str:
        return self.path.name

    @property
    def questions(self) -> Path:
        return self.path / "question.jsonl"

    @property
    def answers(self) -> Path:
        return self.path / "model_answer"

    @property
    def judgments(self) -> Path:
        return self.path / "model_judgment"

    def judges(self) -> list[str]:
        """Judges that have a folder of judgments here."""
        return _folders(self.judgments)

    def answer_file(self, model: str) -> Path | None:
        """A model's answers, or None where its name can be no file's."""
        return None if name_problem(model) else self.answers / f"{model}.jsonl"

    def judgment_files(self, judge: str, baseline: str | None = None) -> list[Path]:
        """A judge's files by name; with a `baseline` also those of its own folder. Raises DataError."""
        folder = self.judgments / self._checked(judge)
        if not folder.is_dir():
            raise DataError(f"no judgments of judge '{judge}'", where=str(self.judgments),
                            todo=f"judges that are there: {named(self.judges())}; name one with --judge")
        files = [path for path in self._named(folder, baseline) if path.is_file()]
        return sorted(files, key=lambda path: (path.name, len(path.parts)))

    def no_files(self, judge: str, baseline: str | None = None) -> list[Path]:
        """What is called as a judgment file of a judge but is none: folders, pipes, links that lead nowhere."""
        return sorted(path for path in self._named(self.judgments / self._checked(judge), baseline)
                      if not path.is_file())

    @staticmethod
    def _named(folder: Path, baseline: str | None) -> list[Path]:
        other = baseline is not None and name_problem(baseline) is None
        return _jsonl(folder) + (_jsonl(folder / f"{OTHER_BASELINE}{baseline}") if other else [])

    def other_baselines(self, judge: str) -> list[str]:
        """Baselines that have a folder of their own under a judge."""
        return [name.removeprefix(OTHER_BASELINE) for name in _folders(self.judgments / self._checked(judge))
                if name.startswith(OTHER_BASELINE)]

    def chosen_judges(self, asked: Sequence[str]) -> tuple[str, ...]:
        """The judges that were asked for, or the only one there is. Raises DataError naming those that are there."""
        there = self.judges()
        if asked:
            for judge in asked:
                self.judgment_files(judge)
            return tuple(dict.fromkeys(asked))
        if len(there) == 1:
            return tuple(there)
        if not there:
            raise DataError("no judgments here", where=str(self.judgments),
                            todo="judge the models first ('flock-hpc judge'), or name another folder with --data")
        raise DataError(f"judgments of {len(there)} judges: {named(there)}", where=str(self.judgments),
                        todo="name one with --judge, or several to pool them")

    @staticmethod
    def _checked(judge: str) -> str:
        problem = name_problem(judge)
        if problem:
            raise DataError(f"judge name {judge!r} can't be used: {problem}")
        return judge


def _jsonl(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if path.suffix == ".jsonl" and not path.name.startswith(".")]


def _folders(folder: Path) -> list[str]:
    return sorted(path.name for path in _entries(folder) if path.is_dir() and not path.name.startswith("."))


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        raise StorageError.of(error, folder, "list it") from error


def of_workspace(workspace: Workspace) -> BenchFolder:
    """The bench folder of a workspace's checkout. Raises DataError where there is none."""
    if not workspace.bench.is_dir():
        raise DataError("no folder of this bench", where=str(workspace.bench),
                        todo="point 'arena_hard' and 'bench' in flock-hpc.yaml at an Arena-Hard checkout")
    return BenchFolder(workspace.bench)


def of_data(data: Path, bench: str | None = None) -> BenchFolder:
    """The bench folder below `data`, which holds `<bench>/` or `data/<bench>/`, or is the bench folder itself.

    Without `bench`: the only one there is. Raises DataError naming what is there.
    """
    if not data.is_dir():
        raise DataError("no such folder", where=str(data))
    if bench is None:
        return _only_bench(data)
    problem = name_problem(bench)
    if problem:
        raise DataError(f"bench name {bench!r} can't be used: {problem}")
    for folder in (data / bench, data / "data" / bench):
        if folder.is_dir():
            return BenchFolder(folder)
    raise DataError(f"no folder of bench '{bench}'", where=str(data),
                    todo=f"benches that are there: {named(_benches(data))}; name one with --bench")


def _is_bench(folder: Path) -> bool:
    return (folder / "model_judgment").is_dir() or (folder / "model_answer").is_dir()


def _benches(data: Path) -> list[str]:
    return sorted({name for top in (data, data / "data") for name in _folders(top) if _is_bench(top / name)})


def _only_bench(data: Path) -> BenchFolder:
    if _is_bench(data):
        return BenchFolder(data.resolve())
    there = _benches(data)
    if len(there) == 1:
        return of_data(data, there[0])
    raise DataError(f"benches here: {named(there)}", where=str(data), todo="name one with --bench")
