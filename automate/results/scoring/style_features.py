"""Differences in style of a model's answer and the baseline's: length and Markdown, as Arena-Hard defines them.

Never fits anything, and never makes a value up: where metadata is missing the row is left out and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from automate.errors import DataError
from automate.results.battles import FEATURES, Battles, Floats, Style

COLUMNS = {"length": (0,), "markdown": (1, 2, 3)}
"""Which of FEATURES each of the two groups of style features holds."""


@dataclass(frozen=True)
class Differences:
    """Style of each row: `values` of shape (rows, features chosen), `known` which rows have metadata on both sides.

    `names` of the features; `empty` rows in which both answers have no tokens (their length difference is 0).
    """

    names: tuple[str, ...]
    values: Floats
    known: NDArray[np.bool_]
    empty: int
    notes: tuple[str, ...]


def columns(control: Sequence[str]) -> list[int]:
    """Indexes into FEATURES of the features to control for, in their order."""
    return sorted({column for name in control for column in COLUMNS[name]})


def differences(battles: Battles, style: Style | None, control: Sequence[str]) -> Differences:
    """Style differences of every row, from -1 to 1. DataError where no row at all has metadata on both sides.

    Length: (a - b) / (a + b) of the answers' tokens. Headers, lists and bold: counts per token (plus one), then
    (a - b) / (a + b + 1). Two answers without a token have the length difference 0.
    """
    if style is None:
        raise DataError("style control needs the metadata of the answers, and no answers were read",
                        todo="name the data folder that holds model_answer, or leave style control out")
    at = _rows_of(battles, style)
    model = _counts(battles, style, battles.models, battles.model, at)
    baseline = _counts(battles, style, battles.baselines, battles.baseline, at)
    wanted = columns(control)
    needed = sorted({0, *wanted})
    known = np.asarray(np.isfinite(model[:, needed] + baseline[:, needed]).all(axis=1), np.bool_)
    if len(battles) and not known.any():
        raise DataError(_nothing_known(battles, style), todo="add metadata to these answers (`flock-hpc generate` "
                        "writes it), or leave style control out")
    values = _features(model, baseline)[:, wanted]
    empty = int(np.sum(known & (model[:, 0] + baseline[:, 0] == 0)))
    return Differences(tuple(FEATURES[column] for column in wanted), values, known, empty,
                       _notes(battles, known, empty))


def _rows_of(battles: Battles, style: Style) -> NDArray[np.int64]:
    """Where each row's question is in `style`; -1 where it is not."""
    if style.questions == battles.questions:
        return battles.question.astype(np.int64)
    places = {uid: place for place, uid in enumerate(style.questions)}
    return np.array([places.get(uid, -1) for uid in battles.questions], np.int64)[battles.question]


def _counts(battles: Battles, style: Style, names: tuple[str, ...], index: NDArray[np.int32],
            at: NDArray[np.int64]) -> Floats:
    found = np.full((len(battles), len(FEATURES)), np.nan)
    for number, name in enumerate(names):
        counts = style.counts.get(name)
        if counts is not None:
            rows = np.flatnonzero((index == number) & (at >= 0))
            found[rows] = counts[at[rows]]
    return np.where((found >= 0) & np.isfinite(found), found, np.nan)


def _features(model: Floats, baseline: Floats) -> Floats:
    """All four features of each row, shape (rows, 4)."""
    found = np.zeros_like(model)
    tokens = model[:, 0] + baseline[:, 0]
    np.divide(model[:, 0] - baseline[:, 0], tokens, out=found[:, 0], where=tokens != 0)
    ours, theirs = model[:, 1:] / (model[:, :1] + 1), baseline[:, 1:] / (baseline[:, :1] + 1)
    found[:, 1:] = (ours - theirs) / (ours + theirs + 1)
    return found


def _nothing_known(battles: Battles, style: Style) -> str:
    bare = [name for name in (*battles.baselines, *battles.models)
            if name not in style.counts or not np.isfinite(style.counts[name]).any()]
    return f"no style metadata for any judged question; without it at all: {', '.join(bare) or 'none'}"


def _notes(battles: Battles, known: NDArray[np.bool_], empty: int) -> tuple[str, ...]:
    found = []
    if not known.all():
        models, counts = np.unique(battles.model[~known], return_counts=True)
        each = ", ".join(f"{battles.models[model]} {count}" for model, count in zip(models, counts, strict=True))
        found.append(f"{int((~known).sum())} of {len(battles)} rows left out: style metadata of an answer is missing "
                     f"({each})")
    if empty:
        found.append(f"{empty} rows in which neither answer has a token: their difference in length is taken as 0")
    return tuple(found)
