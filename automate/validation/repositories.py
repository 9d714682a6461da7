"""What a repository of the model hub holds, and which of its files an assignment needs.

Pure. Names of files and repositories are strangers': what could leave its folder is never asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from automate.validation.troubles import SubmissionAtFault, TryLater

JSON = Any
ADAPTER = "adapter_config.json"
CONFIGS = ("config.json", "tokenizer_config.json")
"""Files that say whether a repository wants its own code to run."""
MAX_JSON = 5_000_000
"""Bytes of a config that is read."""
_REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95})?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PLAIN = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.spm", "*.vocab", "*.bpe")
"""Configs and tokenizers, of the top folder."""


@dataclass(frozen=True)
class RepoFile:
    """A file of a repository: its name with slashes, bytes, and sha256 in hex where the hub gives it (large files)."""

    name: str
    size: int
    sha256: str | None = None


@dataclass(frozen=True)
class Listing:
    """A repository at one commit (40 hex digits), with the files whose names can be taken as they are."""

    repo: str
    commit: str
    files: tuple[RepoFile, ...]

    def file(self, name: str) -> RepoFile | None:
        """The file of that name."""
        return next((one for one in self.files if one.name == name), None)

    def some(self, names: Iterable[str]) -> list[RepoFile]:
        """Those of these files that are there."""
        wanted = set(names)
        return [one for one in self.files if one.name in wanted]

    @property
    def adapter(self) -> bool:
        """Whether it is a LoRA adapter: by its listing, never by an error's text."""
        return self.file(ADAPTER) is not None


def repo_problem(repo: JSON) -> str | None:
    """Why this can't be a repository's id, or None."""
    if isinstance(repo, str) and _REPO.fullmatch(repo) and not any(bad in repo for bad in ("..", "--")) \
            and not repo.endswith((".git", ".", "-")):
        return None
    return f"{str(repo)[:100]!r} is not the id of a repository on the model hub"


def is_commit(text: JSON) -> bool:
    """Whether it is a whole commit id."""
    return isinstance(text, str) and _COMMIT.fullmatch(text) is not None


def safe_name(name: JSON) -> bool:
    """Whether a file name of a repository stays inside its folder, and out of the downloader's own notes."""
    if not isinstance(name, str) or not name or len(name.encode("utf-8", "replace")) > 400 or "\\" in name:
        return False
    parts = name.split("/")
    return name.isprintable() and all(part and not part.startswith(".") and len(part.encode("utf-8", "replace")) < 200
                                      and ":" not in part for part in parts)


def total(files: Iterable[RepoFile]) -> int:
    """Bytes of all of them."""
    return sum(one.size for one in files)


def policy_files(listing: Listing, model_filename: JSON) -> list[RepoFile]:
    """The ONNX policy that an `rl` submission names, and its external weights. Raises SubmissionAtFault."""
    name = model_filename if isinstance(model_filename, str) else ""
    found = listing.file(name) if safe_name(name) else None
    if found is None:
        raise SubmissionAtFault(f"the repository has no file {str(model_filename)[:100]!r}, which the submission names",
                                cause="missing-model-file", where=listing.repo)
    return [found, *listing.some([f"{name}.data"])]


def model_files(listing: Listing, *, code: bool = False) -> list[RepoFile]:
    """What a LoRA adapter or a model needs: configs, tokenizer, one set of weights; with `code` its Python files too.

    A repository that is neither (no `config.json`, no adapter) is taken whole: its module knows what it is.
    """
    top = [one for one in listing.files if "/" not in one.name]
    if not listing.adapter and listing.file("config.json") is None:
        return list(listing.files)
    weights = _adapter_weights(top) if listing.adapter else _weights(top)
    plain = [one for one in top if any(fnmatchcase(one.name, pattern) for pattern in _PLAIN)]
    own = [one for one in listing.files if code and one.name.endswith(".py")]
    return list(dict.fromkeys([*plain, *weights, *own]))


def _first(files: Sequence[RepoFile], *choices: tuple[str, ...]) -> list[RepoFile]:
    for patterns in choices:
        found = [one for one in files if any(fnmatchcase(one.name, pattern) for pattern in patterns)]
        if found:
            return found
    return []


def _adapter_weights(top: Sequence[RepoFile]) -> list[RepoFile]:
    return _first(top, ("adapter_model*.safetensors",), ("adapter_model*.bin",))


def _weights(top: Sequence[RepoFile]) -> list[RepoFile]:
    """Safetensors before pickles; of several sets the one that transformers loads."""
    rest = [one for one in top if not one.name.startswith("adapter_model")]
    return _first(rest, ("model*.safetensors",), ("*.safetensors",), ("pytorch_model*.bin",), ("*.bin",))


def base_of(config: bytes, where: str) -> str:
    """The base model that `adapter_config.json` names. Raises SubmissionAtFault."""
    try:
        value = json.loads(config[:MAX_JSON])
    except (ValueError, RecursionError) as error:
        raise SubmissionAtFault(f"{ADAPTER} is not JSON", cause="bad-adapter-config", where=where) from error
    base = value.get("base_model_name_or_path") if isinstance(value, dict) else None
    if not base:
        raise SubmissionAtFault(f"{ADAPTER} names no base_model_name_or_path", cause="bad-adapter-config", where=where)
    problem = repo_problem(base)
    if problem:
        raise SubmissionAtFault(f"the adapter's base model: {problem}", cause="bad-base", where=where)
    return str(base)


def own_code(config: bytes) -> list[str]:
    """The files of its own that a config wants to run (`auto_map`); none where it can't be read: its module says so."""
    try:
        value = json.loads(config[:MAX_JSON])
    except (ValueError, RecursionError):
        return []
    named = value.get("auto_map") if isinstance(value, dict) else None
    listed = list(named.values()) if isinstance(named, dict) else [named]
    flat = [text for one in listed for text in (one if isinstance(one, list) else [one]) if isinstance(text, str)]
    return sorted({text.rpartition(".")[0] or text for text in flat})


def parse_listing(repo: str, commit: JSON, rows: Iterable[tuple[JSON, JSON, JSON]]) -> Listing:
    """A listing of (name, bytes, sha256) rows; unsafe names are left out. Raises TryLater where sizes are missing."""
    if not is_commit(commit):
        raise TryLater("the model hub named no commit", cause="hub", where=repo)
    found: dict[str, RepoFile] = {}
    for name, size, sha256 in rows:
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise TryLater("the model hub gave a file without its size", cause="hub", where=repo)
        if safe_name(name):
            found[name] = RepoFile(name, size, sha256 if isinstance(sha256, str) and len(sha256) == 64 else None)
    return Listing(repo, str(commit), tuple(found.values()))
