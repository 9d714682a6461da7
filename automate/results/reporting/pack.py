"""Packs the texts of games for the page: gzip of JSON lines, disagreements first, so many as there is room for.

Never decides what is true of a game; what does not fit is counted and said."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from automate.results.reading.folder import BenchFolder
from automate.results.reporting.content import ModelGames, PackedGames
from automate.results.reporting.games import Duel, read_answer_texts, read_duels, read_question_texts

ROOM = 22_000_000
"""Bytes of the page for the texts of games, in base64."""
MAX_TEXT = 60_000
"""Characters of one text that are taken."""
_PENDING = 70_000
"""Bytes that a compressor may hold back: what it has put out is less than what it took in by that much."""
Json = Mapping[str, object]


@dataclass(frozen=True)
class Sources:
    """Where the texts are: `files[model]` are its judgment files, each with its judge's place in `judges`.

    `baselines` are those whose answers are known to be needed; `only`: the one baseline whose games are wanted.
    """

    folder: BenchFolder
    judges: tuple[str, ...]
    files: Mapping[str, Sequence[tuple[int, Path]]]
    baselines: tuple[str, ...] = ()
    only: str | None = None
    category: str | None = None

    def answers_of(self, model: str) -> dict[str, str]:
        """A model's answers by uid; none where its name can't be a file's or no answer has a text."""
        path = self.folder.answer_file(model)
        texts = read_answer_texts(path) if path is not None else {}
        return texts if any(texts.values()) else {}  # a file whose texts were all taken out has no answers


@dataclass
class _Wide:
    """What all models share: questions, the baselines' answers, and which of them the packed games need."""

    prompts: dict[str, str]
    answers: dict[str, dict[str, str]]
    baselines: list[str]
    wanted: dict[str, None] = field(default_factory=dict)
    cut: int = 0
    words: bool = False
    own_answers: bool = False

    def clip(self, text: str | None) -> str | None:
        """A text, or its beginning and how long it is."""
        if text is None or len(text) <= MAX_TEXT:
            return text
        self.cut += 1
        return f"{text[:MAX_TEXT]}\n\n[cut here: the first {MAX_TEXT:,} of {len(text):,} characters]"


def _line(value: Json) -> bytes:
    """One JSON line in plain ASCII: no separator of Unicode can end it, no half of a surrogate pair break it."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def gzip_lines(lines: Iterable[bytes], room: int | None = None) -> tuple[bytes, int]:
    """Lines as gzip (no time in it), and how many of them fitted into `room` bytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    out: list[bytes] = []
    size = count = held = 0
    for line in lines:
        if room is not None and size + min(held, _PENDING) + len(line) // 2 > room:
            break
        piece = packer.compress(line)
        size, held = size + len(piece), 0 if piece else held + len(line) // 2
        out.append(piece)
        count += 1
    return b"".join([*out, packer.flush()]), count


def pack_games(sources: Sources, limit: int | None = None, room: int | None = ROOM) -> PackedGames:
    """The games of all models: at most `limit` questions a model, and so many that `room` bytes of base64 suffice."""
    if limit == 0:
        return PackedGames(judges=sources.judges, texts=False, notes=("The games were left out (--games 0).",))
    wide = _read_wide(sources)
    left = None if room is None else room * 3 // 4 - len(_pack_shared(wide, list(wide.prompts)))
    models: dict[str, ModelGames] = {}
    sizes = {model: sum(path.stat().st_size for _, path in files if path.is_file())
             for model, files in sources.files.items()}
    for place, model in enumerate(sorted(sizes, key=lambda name: (sizes[name], name))):
        share = None if left is None else max(left, 0) // (len(sizes) - place)
        models[model] = _pack_model(sources, model, wide, limit, share)
        left = None if left is None else left - len(models[model].data)
    return _packed(sources, wide, tuple(models[name] for name in sources.files))


def _packed(sources: Sources, wide: _Wide, models: tuple[ModelGames, ...]) -> PackedGames:
    texts = wide.words or wide.own_answers
    shared = _pack_shared(wide, list(wide.wanted)) if texts else b""
    return PackedGames(models, shared, sources.judges, tuple(wide.baselines), texts, wide.own_answers, wide.cut)


def _read_wide(sources: Sources) -> _Wide:
    names = list(dict.fromkeys(sources.baselines))
    answers = {name: sources.answers_of(name) for name in names}
    return _Wide(read_question_texts(sources.folder.questions), answers, names)


def _pack_shared(wide: _Wide, uids: Sequence[str]) -> bytes:
    before = wide.cut
    lines = (_line({"u": uid, "p": wide.clip(wide.prompts.get(uid)),
                    "a": [wide.clip(wide.answers[name].get(uid)) for name in wide.baselines]}) for uid in uids)
    data, _ = gzip_lines(lines)
    if not wide.wanted:
        wide.cut = before
    return data


def _pack_model(sources: Sources, model: str, wide: _Wide, limit: int | None, room: int | None) -> ModelGames:
    answers = sources.answers_of(model)
    duels = read_duels(sources.files[model], sources.only, sources.category, keep_given=not answers)
    wide.own_answers |= bool(answers)
    wide.words |= any(any(told.words) for duel in duels for told in duel.told)
    for duel in duels:
        if duel.baseline not in wide.baselines:
            wide.baselines.append(duel.baseline)
            wide.answers[duel.baseline] = sources.answers_of(duel.baseline)
    wanted = duels if limit is None else duels[:limit]
    data, count = gzip_lines((_line(_entry(duel, answers.get(duel.uid), wide)) for duel in wanted), room)
    wide.wanted.update(dict.fromkeys(duel.uid for duel in wanted[:count]))
    return ModelGames(model, data, count, len(duels), _disagreements(duels), _disagreements(wanted[:count]))


def _disagreements(duels: Sequence[Duel]) -> int:
    return sum(duel.rank == 0 for duel in duels)


def _entry(duel: Duel, answer: str | None, wide: _Wide) -> Json:
    """One question as the page's script reads it."""
    clip: Callable[[str | None], str | None] = wide.clip
    given = {"p": clip(duel.given)} if duel.given else {}
    return {**given, "u": duel.uid, "c": duel.category, "b": wide.baselines.index(duel.baseline), "a": clip(answer),
            "g": [{"j": told.judge, "l": told.labels, "v": told.verdicts, "w": [clip(text) for text in told.words]}
                  for told in duel.told]}
