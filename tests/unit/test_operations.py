"""The page on operations quotes lines that the program prints, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "operations.md"
BLOCK = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOLE = re.compile(r"\.\.\.|\b[A-Z][A-Z0-9_]*\b")
"""What stands for a variable part: three dots, or a word in capitals."""
MARKUP = re.compile(r"\[/?(?:bold|dim|red|green|yellow|blue|magenta)?\]")
EDGES = " \t\n.,;:()[]'\"-→·>=✘✔!|"


def quoted(page: str) -> list[str]:
    """Every line of the page's `text` blocks."""
    return [line.strip() for block in BLOCK.findall(page) for line in block.split("\n") if line.strip()]


def parts(node: ast.AST) -> Iterator[str]:
    """The literal parts of all strings below a node; a docstring prints nothing."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value
        yield from parts(child)


@cache
def source() -> str:
    """All that the program can print: its literal parts, each on a line of its own, without signs at their ends."""
    found = {" ".join(MARKUP.sub("", part).split()).strip(EDGES)
             for path in sorted((ROOT / "automate").rglob("*.py"))
             for part in parts(ast.parse(path.read_text(encoding="utf-8")))}
    return "\n".join(["", *sorted(found), ""])


def printed(words: list[str]) -> bool:
    """Whether these words are a literal part; two or three may be its beginning or its end, more any piece of it."""
    text, bare = source(), " ".join(words).strip(EDGES)
    if not bare or f"\n{bare}\n" in text:
        return True
    if len(words) == 1:
        return f"\n{bare}\n".lower() in text.lower()
    return bare in text if len(words) > 3 else f"\n{bare}" in text or f"{bare}\n" in text


def pieces(words: list[str]) -> list[int] | None:
    """How long the literal parts are that these words are made of one after the other; None where they are not."""
    found: list[list[int] | None] = [[]]
    for end in range(1, len(words) + 1):
        ways = [[*before, end - begin] for begin, before in enumerate(found)
                if before is not None and printed(words[begin:end])]
        found.append(max(ways, key=max, default=None))
    return found[-1]


def missing(line: str) -> str:
    """What of a line nothing prints; "" where all of it is printed."""
    literal = [part.split() for part in HOLE.split(line)]
    found = [pieces(words) for words in literal]
    bad = [" ".join(words) for words, lengths in zip(literal, found, strict=True) if lengths is None]
    longest = max((length for lengths in found for length in lengths or ()), default=0)
    if not bad and longest < 2 and len(re.findall(r"[a-z_]+", HOLE.sub(" ", line))) > 4:
        return f"only single words of: {line}"
    return "; ".join(bad)


@pytest.mark.parametrize("line", quoted(PAGE.read_text(encoding="utf-8")))
def test_a_quoted_line_is_one_that_the_program_prints(line: str) -> None:
    assert missing(line) == ""


@pytest.mark.parametrize("line", [
    "JOB was eaten by a dragon", "time limit: no more games will be started; those in flight have ... to finish",
    "batch N: completed by the night shift", "running queued unknown cancelled stalled"])
def test_a_line_that_nothing_prints_is_found_out(line: str) -> None:
    assert missing(line)


def test_a_quoted_line_fails_when_one_of_its_words_changes() -> None:
    for line in quoted(PAGE.read_text(encoding="utf-8")):
        word = max((word for piece in HOLE.split(line) for word in re.findall(r"[a-z]+", piece)), key=len)
        assert missing(line.replace(word, f"{word}ish")), line


def test_the_page_quotes_many_lines_and_its_contents_lead_to_headings() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(quoted(page)) > 150
    headings = re.findall(r"^#{2,3} (.+)$", page, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}
    others = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *sorted(PAGE.parent.glob("*.md")))]
    targets = re.findall(r"\]\(#([^)]+)\)", page)
    targets += re.findall(r"operations\.md#([^)]+)\)", "".join(others))
    assert set(targets) <= anchors
    assert len(anchors) == len(headings)
    listed = set(re.findall(r"\[([^\]]+)\]\(#", page))
    assert set(headings) - {"Contents", "Where lines are seen"} <= listed
