"""A pool's leaderboard for other programs: JSON, CSV, a page.

Pure; numbers are whole, not rounded for show."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from automate.cli.views.files import cell, plain


def as_json(board: Mapping[str, Any]) -> str:
    """The leaderboard as one JSON document."""
    return json.dumps(plain(board), indent=2, ensure_ascii=False) + "\n"


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
