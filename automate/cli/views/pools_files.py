"""A pool's leaderboard for other programs: JSON, CSV, a page.

Pure; numbers are whole, not rounded for show."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from automate.cli.views.files import cell, plain

_OBEYED = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal might obey, or can't show, and JSON leaves as it is."""


def as_json(value: object) -> str:
    """One JSON document that a terminal only shows: what it might obey is escaped. Money is text."""
    from automate.pools.amounts import as_text

    text = json.dumps(plain(as_text(value)), indent=2, ensure_ascii=False)
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def as_csv(board: Mapping[str, Any]) -> str:
    """The leaderboard as CSV, one line a model, with all fields of `leaderboard.Place`."""
    from automate.pools.leaderboard import Place

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [field.name for field in fields(Place)]
    writer.writerow(names)
    for place in board["places"]:
        writer.writerow([cell(value) if isinstance(value := place[name], str) else value for name in names])
    return out.getvalue()


def as_html(board: Mapping[str, Any], now: int) -> str:
    """The leaderboard as one page that asks nothing of any network. `now` in ms."""
    from automate.pools.web.page import render

    return render(board, now)
