"""Renders a report's content as one HTML page that asks nothing of any network.

Every value goes through Jinja's escaping; texts of games travel as base64 and are shown by the page's script."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from automate.errors import visible
from automate.resources import templates_dir
from automate.results.boards import Quality
from automate.results.reporting.content import Content, PackedGames
from automate.results.reporting.summary import confidence, p_value, percent, points
from automate.results.reporting.tables import board_rows, category_rows


def clean(value: object) -> object:
    """What an expression of a template gives: text without control characters and halves of surrogate pairs."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value).encode("utf-8", "replace").decode()
    return value


@cache
def _folder() -> Path:
    return templates_dir() / "report"


def _source(name: str) -> Markup:
    """A file of the page's own, as it is."""
    return Markup((_folder() / name).read_text(encoding="utf-8").replace("\r\n", "\n"))  # noqa: S704 - shipped


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_folder()), undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True, autoescape=True, finalize=clean)
    environment.filters.update(points=points, percent=percent, p_value=p_value, base64=_base64, size=size_text)
    return environment


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def size_text(size: int) -> str:
    """Bytes as one says them."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB" if size >= 1000 else f"{size} bytes"


def policy(style: str, script: str) -> str:
    """The page's content security policy: its own style and script by hash, pictures within it, and nothing else."""
    hashes = {name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
              for name, text in (("style", style), ("script", script))}
    return (f"default-src 'none'; style-src 'sha256-{hashes['style']}'; script-src 'sha256-{hashes['script']}'; "
            "img-src data:; base-uri 'none'; form-action 'none'")


def _index(games: PackedGames) -> Markup:
    """What the page's script must know of the packed games, as JSON that can't end its element."""
    value = {"judges": games.judges, "baselines": games.baselines,
             "models": [{"name": str(clean(one.model)), "included": one.included, "questions": one.questions}
                        for one in games.models]}
    text = json.dumps(value, ensure_ascii=True)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)  # noqa: S704 - no character in it has a meaning in HTML


def render(content: Content) -> str:
    """The whole page. The same content gives the same text."""
    style, script = _source("style.css"), _source("script.js")
    rows, axis = board_rows(content)
    judges = tuple(one for one in content.quality if one.model is None)
    return _environment().get_template("page.html.j2").render(
        content=content, board=content.board, rows=rows, axis=axis, games=content.games,
        categories=category_rows(content.board, content.by_category), judges=judges,
        by_model=tuple(one for one in content.quality if one.model is not None), nulls=_nulls,
        confidence=confidence(content.board), style=style, script=script, policy=policy(style, script),
        index=_index(content.games))


def _nulls(quality: Quality) -> str:
    """Games without a verdict, by cause."""
    counts = sorted(quality.nulls.items())
    return ", ".join(f"{count:,} {cause.replace('_', ' ')}" for cause, count in counts if count) or "none"
