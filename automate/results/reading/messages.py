"""What is said of files that were read: counts and names in, one sentence each out.

Pure; a sentence names the file, the count and, where there is something to do, what."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from automate.results.battles import Tally
from automate.results.reading.folder import named

MOST_FILES = 5
"""Files of one kind that are named one by one."""

MOST_COMPARED = 5000
"""Names that are looked through for one that is like another."""

CAUSE_WORDS = {"too_long": "too long for the judge", "refused": "refused", "unparsed": "no label in the reply",
               "null": "null", "bad_label": "a label that none knows", "missing_game": "game missing"}


def many(count: int, one: str, several: str | None = None) -> str:
    """`1 row`, `2 rows`."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def causes(nulls: Mapping[str, int]) -> str:
    """Games without a verdict by cause: `3 null, 1 refused`."""
    return ", ".join(f"{count:,} {CAUSE_WORDS.get(cause, cause)}" for cause, count in nulls.items() if count)


def no_file(path: Path) -> str:
    """Something that is called as a file of judgments and is none."""
    what = "a link that leads nowhere" if path.is_symlink() and not path.exists() else \
        "a folder" if path.is_dir() else "a pipe, socket or device" if path.exists() else "gone by now"
    return f"{path}: left out: {what}, not a file of judgments"


def no_questions(path: object) -> str:
    """The questions file is not there."""
    return f"{path}: no questions file, so it can't be told which questions are missing"


def other_question_set(path: object, unknown: int, examples: Sequence[str]) -> str:
    """Some rows are of questions that the questions file lacks."""
    return (f"{path}: a question set of another version: {many(unknown, 'row')} of questions that are not in it "
            f"(such as {named(examples, 2)}); they are left out")


def lost_questions(path: object, unusable: int, rows: int, examples: Sequence[str]) -> str:
    """Some rows are of questions that a questions file with damaged lines lacks."""
    return (f"{path}: {many(rows, 'row')} of questions that are not in it (such as {named(examples, 2)}), likely in "
            f"its {many(unusable, 'line')} that can't be read; they are left out until the file is mended")


def repeated_question(path: object, uid: str, line: int, first: int) -> str:
    """A question that stands twice in the questions file."""
    return f"{path}:{line}: question {uid!r} stands there again (first in line {first}); the last line counts"


def useless_question_set(path: object, rows: int) -> str:
    """No row is of a question of the questions file."""
    return (f"{path}: a question set of another version: it holds no question of the {many(rows, 'row')} that were "
            "read; it was not used")


def without_rows(file: object, model: str, baseline: str | None) -> str:
    """A file without a single game that is asked for."""
    against = f" against baseline '{baseline}'" if baseline is not None else ""
    return f"{file}: no games of '{model}'{against}; it has no score"


def without_verdicts(file: object, model: str, rows: int, nulls: Mapping[str, int]) -> str:
    """A model whose games are all without a verdict."""
    return f"{file}: none of the {many(rows, 'row')} of '{model}' has both verdicts ({causes(nulls)}); it has no score"


def incomplete(tally: Tally, left_out: int) -> str:
    """Rows of a file that are left out, and why."""
    shown = "; labels: " + named((f"{label!r} {count:,}x" for label, count in tally.bad_labels.items()), 6) \
        if tally.bad_labels else ""
    return (f"{tally.file}: {left_out:,} of {many(tally.rows, 'row')} left out, as a game has no verdict "
            f"({causes(tally.nulls)}{shown})")


def all_incomplete(found: Sequence[tuple[int, Tally]]) -> list[str]:
    """One sentence a file with rows that are left out; of many files without bad labels one for all, with the worst."""
    single = [one for one in found if one[1].bad_labels]
    rest = [one for one in found if not one[1].bad_labels]
    if len(rest) <= MOST_FILES:
        return [incomplete(tally, left_out) for left_out, tally in found]
    total: Counter[str] = Counter()
    for _, tally in rest:
        total.update(tally.nulls)
    left_out, worst = max(rest, key=lambda one: one[0])
    return [*(incomplete(tally, count) for count, tally in single),
            f"{len(rest)} files: {sum(count for count, _ in rest):,} rows left out, as a game has no verdict "
            f"({causes(total)}); most in {incomplete(worst, left_out)}"]


def duplicates(file: object, count: int) -> str:
    """Questions that stand in a file several times."""
    return (f"{file}: {many(count, 'row')} of a question that stands there again; the last row with both verdicts "
            "counts")


def renamed(file: object, row_models: Sequence[str], model: str) -> str:
    """Rows that name another model than their file does."""
    return (f"{file}: its rows name the model {named(map(repr, row_models), 3)}; it is listed by the file's name, "
            f"'{model}'")


def one_name(row_model: str, files: Sequence[str]) -> str:
    """One model's name in the rows of several files."""
    return (f"rows of model '{row_model}' in {len(files)} files ({named(files, 4)}): listed apart, by the files' "
            "names; Arena-Hard's own program would pool them")


def several_baselines(category: str, counts: Mapping[str, int]) -> str:
    """A category whose games are not against one baseline."""
    each = named((f"'{name}' in {many(count, 'row')}" for name, count in counts.items()), 6)
    return f"category '{category}': games against several baselines ({each}); choose one with --baseline"


def presumed_baseline(rows: int, baseline: str) -> str:
    """Old rows, counted for the baseline that was asked for."""
    return f"{many(rows, 'row')} don't say their baseline (old format); taken to be '{baseline}'"


def unnamed_baseline(rows: int) -> str:
    """Old rows whose baseline nobody named."""
    return f"{many(rows, 'row')} don't say their baseline (old format); name it with --baseline"


def partial_category(category: str, lacking: Sequence[str], models: int) -> str:
    """A category that some models lack."""
    return (f"category '{category}': {len(lacking)} of {many(models, 'model')} have no games in it "
            f"({named(lacking, 3)}); scores over all categories are not of the same questions")


def unjudged(count: int, models: int) -> str:
    """Questions that nobody was judged on."""
    return f"{many(count, 'question')} of the questions file not judged for any of {many(models, 'model')}"


def missing_models(models: Sequence[str], folder: object, there: Sequence[str] = ()) -> str:
    """Models asked for that have no judgments."""
    return f"{folder}: no judgments of {named(models)}{nearest(models, there)}"


def nearest(models: Sequence[str], there: Sequence[str]) -> str:
    """Names that are there and like those that were asked for."""
    near = dict.fromkeys(one for model in models[:MOST_FILES]
                         for one in difflib.get_close_matches(model, there[:MOST_COMPARED], n=2, cutoff=0.5))
    return f"; like it there {'is' if len(near) == 1 else 'are'} {named(near, 4)}" if near else ""


def no_answers(model: str, path: object) -> str:
    """A model without an answers file."""
    return f"{path}: no answers of '{model}', so nothing is known of their length and markdown"


def no_metadata(model: str, path: object, count: int, questions: int) -> str:
    """Answers whose style nobody counted."""
    return f"{path}: no style metadata for {count:,} of {many(questions, 'question')} of '{model}'"


def no_tokens(model: str, path: object, count: int) -> str:
    """Answers that are empty."""
    return f"{path}: {many(count, 'answer')} of '{model}' with no tokens"


def other_tokenizers(counted_by: Mapping[str, Sequence[str]]) -> str:
    """Token counts that can't be compared."""
    each = "; ".join(f"{tokenizer}: {named(models, 3)}" for tokenizer, models in counted_by.items())
    return f"answers' tokens were counted by different tokenizers ({each}); lengths are not comparable"
