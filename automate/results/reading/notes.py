"""What is said of all files together: questions that don't fit, mixed baselines, categories that some models lack.

Pure over what was read."""

from __future__ import annotations

import numpy as np

from automate.results.battles import Battles
from automate.results.reading import messages
from automate.results.reading.folder import BenchFolder
from automate.results.reading.questions import QuestionSet


def notes_of_all(folder: BenchFolder, battles: Battles, kept: Battles, questions: QuestionSet | None) -> list[str]:
    """Sentences about what was read (`battles`) and what of it is used (`kept`)."""
    return _question_notes(folder, battles, kept, questions) + _baseline_notes(kept) + _category_notes(kept)


def _question_notes(folder: BenchFolder, battles: Battles, kept: Battles, questions: QuestionSet | None) -> list[str]:
    if questions is None:
        return [messages.no_questions(folder.questions)]
    if not len(battles):
        return []
    notes = list(questions.problems)
    judged = questions.categories.keys() & set(battles.questions)
    if not judged:
        return [*notes, messages.useless_question_set(questions.path, len(battles))]
    if len(kept) < len(battles):
        unknown = [uid for uid in battles.questions if uid not in judged]
        rows = len(battles) - len(kept)
        notes.append(messages.lost_questions(questions.path, questions.unusable, rows, unknown)
                     if len(unknown) <= questions.unusable
                     else messages.other_question_set(questions.path, rows, unknown))
    unjudged = len(questions.categories) - len(judged)
    if unjudged:
        notes.append(messages.unjudged(unjudged, len(kept.models)))
    return notes


def _baseline_notes(battles: Battles) -> list[str]:
    notes = []
    for number, category in enumerate(battles.categories):
        counts = np.bincount(battles.baseline[battles.category == number], minlength=len(battles.baselines))
        there = {battles.baselines[i]: int(counts[i]) for i in np.argsort(-counts, kind="stable") if counts[i]}
        if len(there) > 1:
            notes.append(messages.several_baselines(category, there))
    return notes


def _category_notes(battles: Battles) -> list[str]:
    if len(battles.categories) < 2:
        return []
    here = np.zeros((len(battles.models), len(battles.categories)), bool)
    here[battles.model, battles.category] = True
    return [messages.partial_category(category, [battles.models[i] for i in np.flatnonzero(~here[:, number])],
                                      len(battles.models))
            for number, category in enumerate(battles.categories) if not here[:, number].all()]
