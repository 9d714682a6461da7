"""Style metadata of answers (tokens, headers, lists, bold) by model and question; answers' texts are never kept.

Never counts anything itself: what an answer row doesn't say is NaN."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from automate.errors import StorageError
from automate.results.battles import FEATURES, Floats, Style
from automate.results.reading import messages
from automate.results.reading.dialects import BadLine, read_answer_counts
from automate.results.reading.folder import BenchFolder


def read_style(folder: BenchFolder, models: Sequence[str], questions: Sequence[str]) -> Style:
    """Counts of each model's answers to these questions. A model without answers has NaN throughout.

    Of several rows of a question the last counts. Raises StorageError where a file is there but can't be read.
    """
    numbers = {uid: number for number, uid in enumerate(questions)}
    counts: dict[str, Floats] = {}
    counted_by: dict[str, str] = {}
    for model in dict.fromkeys(models):
        path = folder.answer_file(model)
        tokenizers: Counter[str] = Counter()
        counts[model] = np.full((len(questions), len(FEATURES)), np.nan)
        if path is not None and path.is_file():
            _read_counts(path, numbers, counts[model], tokenizers)
        if tokenizers:
            counted_by[model] = " and ".join(name for name, _ in tokenizers.most_common())
    return Style(tuple(questions), counts, counted_by)


def _read_counts(path: Path, numbers: dict[str, int], counts: Floats, tokenizers: Counter[str]) -> None:
    try:
        with path.open("rb", buffering=1 << 20) as file:
            for line in file:
                try:
                    row = read_answer_counts(line)
                except BadLine:
                    continue
                number = numbers.get(row.uid)
                if number is not None:
                    counts[number] = row.counts
                    if row.tokenizer:
                        tokenizers[row.tokenizer] += 1
    except OSError as error:
        raise StorageError.of(error, path, "read it") from error


def style_notes(folder: BenchFolder, style: Style) -> tuple[str, ...]:
    """What is missing or odd: no answers, no metadata, answers of no tokens, tokenizers that differ."""
    notes: list[str] = []
    for model, counts in style.counts.items():
        path = folder.answer_file(model)
        unknown = int(np.isnan(counts).any(axis=1).sum())
        if path is None or not path.is_file():
            notes.append(messages.no_answers(model, path or folder.answers))
        elif unknown:
            notes.append(messages.no_metadata(model, path, unknown, len(style.questions)))
        empty = int((counts[:, 0] == 0).sum())
        if empty:
            notes.append(messages.no_tokens(model, path, empty))
    by_tokenizer: dict[str, list[str]] = {}
    for model, tokenizer in style.counted_by.items():
        by_tokenizer.setdefault(tokenizer, []).append(model)
    return (*notes, messages.other_tokenizers(by_tokenizer)) if len(by_tokenizer) > 1 else tuple(notes)
