"""Small bench folders for the report's tests, made up on the spot, with the worst texts that files may hold."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from automate.results.reading.folder import BenchFolder, of_data

BENCH = "small-bench"
JUDGE = "the-judge"
BASE = "base"
UP, LEVEL, DOWN, SPLIT = ("B>A", "A>B"), ("A=B", "A=B"), ("A>>B", "B>>A"), ("B>A", "B>A")
"""Labels of both games: the model wins, a tie, the baseline wins clearly, the orders name different winners."""
HOSTILE = (
    "</script><img src=x onerror=alert(1)><script>alert(2)</script>", "line\u2028separator and\u2029paragraph",
    "half of a pair: \ud800 and \udfff.", "nul:\x00 bell:\x07 escape:\x1b[31m", "\u202eright to left\u202c שלום",
    "<!-- ]]> ${alert(3)} `x` {{ 7 * 7 }} {% raw %} &lt;b&gt; \\u003c", "",
)
VOID = {"meta", "link", "img", "input", "br"}
SVG = {"line", "circle"}
EVIL = '<img src=x onerror=alert(1)>"\''
"""A name of a model that can be a file's."""
Models = dict[str, list[tuple[str | None, str | None]]]
"""Labels of both games of each question, by model."""


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """JSON lines in plain ASCII, so that halves of surrogate pairs can be written too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="ascii")


def write_bench(root: Path, models: Models, *,
                judge: str = JUDGE, texts: Sequence[str] = ("plain text",), baseline: str = BASE,
                categories: Sequence[str] = ("hard", "easy"), answers: bool = True) -> BenchFolder:
    """A bench with the labels of each model's questions; texts are taken by turns."""
    folder = root / "data" / BENCH
    count = max(map(len, models.values()))
    uids = [f"u{number:03}" for number in range(count)]
    kinds = [categories[number % len(categories)] for number in range(count)]
    write_rows(folder / "question.jsonl", [{"uid": uid, "category": kind, "prompt": f"{uid} {texts[at % len(texts)]}"}
                                           for at, (uid, kind) in enumerate(zip(uids, kinds, strict=True))])
    for name in [*models, baseline] if answers else []:
        write_rows(folder / "model_answer" / f"{name}.jsonl", [_answer(uid, name, texts[at % len(texts)], at)
                                                               for at, uid in enumerate(uids)])
    for name, labels in models.items():
        rows = [{"uid": uid, "category": kind, "judge": judge, "model": name, "baseline": baseline,
                 "games": [{"score": label, "judgment": {"answer": f"{texts[at % len(texts)]} [[{label}]]"}}
                           for label in both]}
                for at, (uid, kind, both) in enumerate(zip(uids, kinds, labels, strict=False))]
        write_rows(folder / "model_judgment" / judge / f"{name}.jsonl", rows)
    return of_data(root, BENCH)


def _answer(uid: str, model: str, text: str, at: int) -> dict[str, Any]:
    counts = {"token_len": 100 + 7 * at + len(model), "header_count": {"h1": at % 3}, "list_count": {"ordered": at % 5},
              "bold_count": {"**": at % 4}}
    return {"uid": uid, "model": model, "metadata": counts,
            "messages": [{"role": "user", "content": uid}, {"role": "assistant", "content": {"answer": text}}]}


def block(page: str, name: str) -> str:
    """The text of a script element of the page."""
    found = re.search(rf'<script type="[a-z/]+" id="{name}">([^<]*)</script>', page)
    assert found is not None, f"no element {name}"
    return found[1]


def unpacked(page: str, name: str) -> list[dict[str, Any]]:
    """What the page's script reads from one of the packed elements."""
    return lines_of(base64.b64decode(block(page, name)))


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(data).split(b"\n") if line] if data else []


class Page(HTMLParser):
    """Elements opened and closed in order, and what could reach outside."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            self.ids += [value or ""] if name == "id" else []
            self.addresses += [value or ""] if name in ("src", "href", "action", "srcset", "data") else []
            self.handlers += [name] if name.startswith("on") or name == "style" else []
        if tag not in VOID | SVG:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())
