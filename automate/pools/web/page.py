"""A leaderboard, and the list of pools, as HTML pages that ask nothing of any network and need no script.

Every value goes through Jinja's escaping; the only style is the page's own, named by its hash."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from automate.errors import visible
from automate.pools.leaderboard import Board
from automate.resources import templates_dir

MOST = 1000
"""Rows of a page; the rest is said, and in the JSON."""
STATES = {"open": "open", "over": "over, to be paid", "paid": "paid", "refunded": "refunded"}


def render(board: Board | Mapping[str, object], now: int | None = None, *, home: str | None = None) -> str:
    """The page of a leaderboard. `board`: as it is, or as JSON (reading: leaderboard). `now`: when it was made, in ms.
    `home`: the address of the list of pools, where it is served.
    """
    found = asdict(board) if isinstance(board, Board) else board
    places = found["places"]
    assert isinstance(places, list | tuple)
    paid = any(one["reward"] is not None for one in places)
    return _template("board").render(board=found, places=places, paid=paid, most=MOST, now=now, home=home,
                                     style=_style(), policy=policy())


def render_list(pools: Sequence[Mapping[str, object]], now: int) -> str:
    """The page of all pools (reading: pools)."""
    return _template("list").render(pools=pools, most=MOST, now=now, style=_style(), policy=policy())


# --- how values are written -------------------------------------------------------------------------
def clean(value: object) -> object:
    """What an expression of a template gives: text without control characters and halves of surrogate pairs."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value).encode("utf-8", "replace").decode()
    return value


def time_text(value: int | None) -> str:
    """Milliseconds since 1970 as a time in UTC."""
    if value is None:
        return "not yet"
    try:
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "far away"


def short(text: str) -> str:
    """The beginning of an address and its end; the whole is in the title."""
    return text if len(text) <= 14 else f"{text[:6]}…{text[-4:]}"


def quoted(text: str) -> str:
    """A word as a part of an address."""
    return quote(text.encode("utf-8", "replace"), safe="")


def percent(value: float) -> str:
    """A share, to a tenth of a percent."""
    return f"{100 * value:.1f} %"


def place(value: float) -> str:
    """A share as a coordinate of a picture that is 100 wide."""
    return f"{max(0.0, min(100.0, 100 * value)):.2f}"


# --- the page's own parts ---------------------------------------------------------------------------
@cache
def _folder() -> Path:
    return templates_dir() / "pool"


@cache
def _style() -> Markup:
    return Markup((_folder() / "style.css").read_text(encoding="utf-8").replace("\r\n", "\n"))  # noqa: S704 - shipped


@cache
def policy() -> str:
    """The pages' content security policy: their own style by its hash, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


@cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_folder()), undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True, autoescape=True, finalize=clean)
    environment.filters.update(quoted=quoted, time=time_text, short=short, percent=percent, place=place,
                               whole=lambda value: f"{value:,}", state=lambda value: STATES.get(value, value))
    return environment.get_template(f"{name}.html.j2")
