"""Names of checkpoints, read by the pattern of the settings: of which run, at which step, and what else they say.

Never drops a name: those that don't fit the pattern are handed back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from automate.errors import ConfigError

_DIGITS = re.compile(r"[0-9]+")
_PARTS = re.compile(r"([0-9]+(?:\.[0-9]+)?)")
MOST_DIGITS = 15
"""More digits than this are no training step, and would not fit into a float."""


@dataclass(frozen=True)
class Checkpoint:
    """A model as a point of a run. `step` is None where its name only says that it is the run's end (`final`).

    `groups`: what the pattern's other named groups found, as written in the name (`rank`, `lr`, ...).
    """

    model: str
    run: str
    step: int | None
    final: bool = False
    groups: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What the point is called in a table: `48000`, `final`, `48000 final`."""
        number = "" if self.step is None else str(self.step)
        return f"{number} final".strip() if self.final else number


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern, checked: it must be a regular expression with the groups `run` and `step`. Raises ConfigError."""
    todo = "see curves.pattern in docs/settings.md"
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"the pattern of checkpoints' names is not a regular expression: {error}",
                          where="curves.pattern", todo=todo) from error
    if not {"run", "step"} <= set(compiled.groupindex):
        raise ConfigError("the pattern of checkpoints' names needs the groups (?P<run>...) and (?P<step>...)",
                          where="curves.pattern", todo=todo)
    return compiled


def parse(names: Iterable[str], pattern: str, final_step: int | None = None) -> tuple[list[Checkpoint], list[str]]:
    """Checkpoints by run and step (a run's end last), and the names that are none, both sorted.

    `pattern` is for the whole name. `final_step`: the step of every end whose name gives no number. A name whose
    `step` has neither digits nor `final` is handed back as no checkpoint. Raises ConfigError for the pattern.
    """
    compiled = compile_pattern(pattern)
    found, unmatched = [], []
    for name in sorted(set(names)):
        checkpoint = _read(compiled, name, final_step)
        if checkpoint is None:
            unmatched.append(name)
        else:
            found.append(checkpoint)
    return sorted(found, key=_order), unmatched


def _read(compiled: re.Pattern[str], name: str, final_step: int | None) -> Checkpoint | None:
    match = compiled.fullmatch(name)
    if match is None:
        return None
    groups = {key: value for key, value in match.groupdict().items() if value is not None}
    run, text = groups.pop("run", ""), groups.pop("step", "")
    digits = _DIGITS.search(text)
    final = "final" in text.lower()
    if not run or not (digits or final) or (digits and len(digits.group()) > MOST_DIGITS):
        return None
    step = int(digits.group()) if digits else final_step
    return Checkpoint(name, run, step, final, groups)


def _order(checkpoint: Checkpoint) -> tuple[tuple[tuple[int, float, str], ...], bool, float, str]:
    return natural(checkpoint.run), checkpoint.final, checkpoint.step or 0, checkpoint.model


def natural(text: str) -> tuple[tuple[int, float, str], ...]:
    """A key that sorts texts as people do: `rank8` before `rank64`, and `5e-6` before `1e-5`."""
    try:
        number = float(text)
    except ValueError:
        parts = [part for part in _PARTS.split(text) if part]
        return tuple((0, float(part), part) if part[0].isascii() and part[0].isdigit() else (1, 0.0, part)
                     for part in parts)
    return ((0, number, text),) if number == number else ((1, 0.0, text),)  # nan sorts as a word


def group_names(checkpoints: Iterable[Checkpoint]) -> list[str]:
    """The named groups that some checkpoint has, in the pattern's order."""
    return list(dict.fromkeys(name for checkpoint in checkpoints for name in checkpoint.groups))


def same_place(checkpoints: Sequence[Checkpoint]) -> list[str]:
    """A message for each run and step that several names claim."""
    claimed: dict[tuple[str, int | None, bool], list[str]] = {}
    for checkpoint in checkpoints:
        claimed.setdefault((checkpoint.run, checkpoint.step, checkpoint.final), []).append(checkpoint.model)
    return [
        f"{len(models)} models are step {'final' if step is None else step} of run {run}: {', '.join(models)}; "
        f"plots, --csv and best steps have all of them, tables and rankings take {models[0]} (mend curves.pattern to "
        f"tell them apart)"
        for (run, step, _), models in claimed.items() if len(models) > 1]
