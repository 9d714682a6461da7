"""Counts an answer's tokens: with tiktoken where its file is present, else by what the server said.

Never downloads anything: tiktoken is only asked for an encoding whose file was found whole."""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SERVED = "served model"
"""The tokenizer of a count that the server gave."""
_CACHE = "TIKTOKEN_CACHE_DIR"
_FILES: dict[str, tuple[str, str]] = {
    "o200k_base": ("fb374d419588a4632f3f557e76b4b70aebbca790",
                   "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"),
    "cl100k_base": ("9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
                    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"),
}
"""Of each encoding, the name that tiktoken gives its file in a cache, and the file's SHA-256."""


@dataclass(frozen=True)
class Counter:
    """Counts tokens of a text. `name`: the tokenizer, as it is recorded; `notice`: why it is not the wanted one."""

    name: str
    encode: Callable[[str], int] | None = None
    notice: str | None = None

    def count(self, text: str, said: int) -> int:
        """Tokens of a text; `said` is the server's count of the reply."""
        if not text:
            return 0
        return said if self.encode is None else self.encode(text)


def found_file(encoding: str, folder: Path) -> Path | None:
    """An encoding's file in a folder, whole and under tiktoken's name for it or its own, or None."""
    for name in (_FILES[encoding][0], f"{encoding}.tiktoken"):
        path = folder / name
        try:
            if hashlib.sha256(path.read_bytes()).hexdigest() == _FILES[encoding][1]:
                return path
        except OSError:
            continue
    return None


@contextmanager
def _cache_of(encoding: str, path: Path) -> Iterator[None]:
    """tiktoken's cache as a folder that holds this one file, for as long as the block lasts."""
    before = os.environ.get(_CACHE)
    with tempfile.TemporaryDirectory(prefix="fhpc-tokens-") as folder:
        (Path(folder) / _FILES[encoding][0]).symlink_to(path)
        os.environ[_CACHE] = folder
        try:
            yield
        finally:
            os.environ.pop(_CACHE)
            if before is not None:
                os.environ[_CACHE] = before


def counter(encoding: str, folder: str | None, root: Path, environ: Mapping[str, str] | None = None) -> Counter:
    """The counter that the settings ask for, or the server's own count where that can't be had."""
    named = folder or (os.environ if environ is None else environ).get(_CACHE)
    if encoding not in _FILES:
        return Counter(SERVED, notice=f"generate.tokenizer '{encoding}' is not known here; known: {', '.join(_FILES)}")
    if not named:
        return Counter(SERVED, notice=f"no folder with {encoding}'s file is given (generate.tokenizer_folder)")
    path = found_file(encoding, root / Path(named).expanduser())
    if path is None:
        return Counter(SERVED, notice=f"no whole file of {encoding} in {named} ({_FILES[encoding][0]})")
    try:
        tiktoken = importlib.import_module("tiktoken")
    except ImportError:
        return Counter(SERVED, notice="tiktoken is not installed")
    with _cache_of(encoding, path.absolute()):
        found = tiktoken.get_encoding(encoding)
    return Counter(encoding, lambda text: len(found.encode(text, disallowed_special=())))
