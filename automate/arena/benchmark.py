"""Questions, answers, api_config.yaml and the models file: read and checked.

Never writes; what is wrong with a file is returned as text with file and line, or raised by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automate.errors import DataError, StorageError
from automate.journal import read_jsonl
from automate.names import name_problem
from automate.yamlfile import Value, read_yaml


@dataclass(frozen=True, slots=True)
class Question:
    """One question. `uid` is always a string, even where it looks like a number."""

    uid: str
    category: str
    prompt: str


@dataclass(frozen=True)
class Answers:
    """A model's answers by uid, and what is odd about their file."""

    model: str
    path: Path
    texts: dict[str, str]
    row_model: str
    problems: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    rehearsed: int = 0

    @property
    def empty(self) -> int:
        return sum(1 for text in self.texts.values() if not text.strip())


@dataclass(frozen=True)
class ModelsFile:
    """Names of a models file in order, each once; and the lines that were refused."""

    names: tuple[str, ...]
    problems: tuple[str, ...] = field(default=())


def _uid(row: dict[str, Any]) -> str:
    uid = row.get("uid", row.get("question_id"))
    if isinstance(uid, int) and not isinstance(uid, bool):
        uid = str(uid)
    if not isinstance(uid, str) or not uid:
        raise ValueError("no uid (or question_id)")
    return uid


def _question(row: dict[str, Any], bench: str) -> Question:
    prompt = row.get("prompt")
    if prompt is None:  # v0.1: turns[0].content
        turns = row.get("turns")
        prompt = turns[0].get("content") if isinstance(turns, list) and turns else None
    if not isinstance(prompt, str):
        raise ValueError("no prompt (or turns[0].content)")
    category = row.get("category", bench)
    if not isinstance(category, str):
        raise ValueError("category is not text")
    return Question(_uid(row), category, prompt)


def read_questions(path: Path, bench: str) -> list[Question]:
    """All questions of a bench in file order. Raises DataError naming the first bad lines."""
    if not path.is_file():
        raise DataError("no questions file", where=str(path),
                        todo="clone Arena-Hard there, or point 'arena_hard' and 'bench' in flock-hpc.yaml at it")
    lines = read_jsonl(path, need_newline=False)
    problems = [str(bad) for bad in lines.bad]
    questions: dict[str, Question] = {}
    for number, row in lines.records:
        try:
            question = _question(row, bench)
        except (ValueError, AttributeError) as error:
            problems.append(f"{path}:{number}: {error}")
            continue
        if question.uid in questions:
            problems.append(f"{path}:{number}: uid {question.uid} stands here twice")
        questions[question.uid] = question
    if problems:
        raise DataError("bad lines:\n    " + "\n    ".join(problems[:20]), where=str(path),
                        todo="mend the file; it is the user's, flock-hpc never changes it")
    if not questions:
        raise DataError("no questions in it", where=str(path))
    return list(questions.values())


def _answer_text(row: dict[str, Any]) -> str:
    if "messages" in row:
        messages = row["messages"]
        content = messages[-1].get("content") if isinstance(messages, list) and messages else None
        text = content.get("answer") if isinstance(content, dict) else content
    else:  # v0.1: choices[0].turns[0].content
        choices = row.get("choices")
        turns = choices[0].get("turns") if isinstance(choices, list) and choices else None
        text = turns[0].get("content") if isinstance(turns, list) and turns else None
    if not isinstance(text, str):
        raise ValueError("no answer text (messages[-1].content.answer, or choices[0].turns[0].content)")
    return text


def answer_of(row: dict[str, Any]) -> tuple[str, str]:
    """uid and text of an answer row, v2 or v0.1. Raises ValueError where it is none."""
    try:
        return _uid(row), _answer_text(row)
    except (AttributeError, TypeError, KeyError) as error:
        raise ValueError(str(error)) from error


def _is_rehearsed(row: dict[str, Any]) -> bool:
    """Whether an answer says of itself that it is a rehearsal's and means nothing."""
    own = row.get("flock_hpc")
    return isinstance(own, dict) and bool(own.get("rehearsal"))


def read_answers(path: Path, model: str) -> Answers:
    """A model's answer file, v2 or v0.1 rows. Later rows of a uid win, as upstream does; they are listed."""
    lines = read_jsonl(path, need_newline=False)
    problems = [str(bad) for bad in lines.bad]
    texts: dict[str, str] = {}
    duplicates: list[str] = []
    row_model, rehearsed = model, set[str]()
    for number, row in lines.records:
        try:
            uid, text = _uid(row), _answer_text(row)
        except (ValueError, AttributeError, TypeError, KeyError) as error:
            problems.append(f"{path}:{number}: {error}")
            continue
        if uid in texts:
            duplicates.append(uid)
        texts[uid] = text
        (rehearsed.add if _is_rehearsed(row) else rehearsed.discard)(uid)
        row_model = str(row.get("model") or row.get("model_id") or model)
    return Answers(model, path, texts, row_model, tuple(problems), tuple(duplicates), len(rehearsed))


def missing_uids(answers: Answers, questions: Iterable[Question]) -> list[str]:
    """uids of the questions that a model has no answer to."""
    return [question.uid for question in questions if question.uid not in answers.texts]


def read_models_file(path: Path) -> ModelsFile:
    """Model names, one a line; `#` starts a comment. Bad and double names are problems, not errors."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataError("no models file", where=str(path),
                        todo="write one model name a line there, or give --models or --models-file") from error
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 text: byte {error.start}", where=str(path)) from error
    except OSError as error:
        raise StorageError.of(error, path, "read it") from error
    names: list[str] = []
    problems: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        name = re.split(r"\s#", line.strip(), maxsplit=1)[0].strip()
        if not name or name.startswith("#"):
            continue
        reason = name_problem(name)
        if reason:
            problems.append(f"{path}:{number}: {name!r} can't be used: {reason}")
        elif name in names:
            problems.append(f"{path}:{number}: '{name}' stands in the list twice; it is judged once")
        else:
            names.append(name)
    return ModelsFile(tuple(names), tuple(problems))


def unique(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names in order, each once; and those that were there more than once."""
    counts = Counter(names)
    return tuple(counts), tuple(name for name, count in counts.items() if count > 1)


def read_api_config(path: Path) -> dict[str, dict[str, Value]] | None:
    """Entries of api_config.yaml by name, or None where there is no such file. Raises ConfigError."""
    if not path.is_file():
        return None
    found = read_yaml(path)
    return {name: entry if isinstance(entry, dict) else {} for name, entry in found.value.items()}
