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
def source() -> tuple[str, frozenset[str]]:
    """All that the program can print: its literal parts one below the other, and those that are a single word."""
    found = {" ".join(MARKUP.sub("", part).split())
             for path in sorted((ROOT / "automate").rglob("*.py"))
             for part in parts(ast.parse(path.read_text(encoding="utf-8")))}
    words = {part.strip(EDGES).lower() for part in found}
    return "\n".join(sorted(found)), frozenset(word for word in words if word and " " not in word)


def reach(words: list[str]) -> int:
    """How many of the first words stand one behind the other in one literal part; a part of one word counts."""
    text, single = source()
    if not words[0].strip(EDGES):
        return 1
    for count in range(len(words), 1, -1):
        if " ".join(words[:count]).strip(EDGES) in text:
            return count
    return int(words[0].strip(EDGES).lower() in single)


def missing(line: str) -> str:
    """The first words of a line that nothing prints; "" where all of it is printed."""
    longest = 0
    pieces = [piece.split() for piece in HOLE.split(line)]
    for words in pieces:
        while words:
            count = reach(words)
            if not count:
                return " ".join(words)
            longest, words = max(longest, count), words[count:]
    return "" if longest >= min(3, max(map(len, pieces))) else f"only single words of: {line}"


@pytest.mark.parametrize("line", quoted(PAGE.read_text(encoding="utf-8")))
def test_a_quoted_line_is_one_that_the_program_prints(line: str) -> None:
    assert missing(line) == ""


@pytest.mark.parametrize("line", [
    "JOB was eaten by a dragon", "time limit: no more games will be started; those in flight have ... to finish",
    "batch N: completed, and nobody knows why", "running queued unknown cancelled"])
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
    targets = re.findall(r"\]\(#([^)]+)\)", page)
    assert set(targets) <= anchors
    assert len(anchors) == len(headings)
    assert {title for title in re.findall(r"^## (.+)$", page, re.MULTILINE)} <= {
        title for title in re.findall(r"^- \[([^\]]+)\]\(#", page, re.MULTILINE)} | {"Contents"}
