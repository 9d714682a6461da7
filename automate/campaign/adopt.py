"""Finds what an incumbent's folder holds: checkout, models file, and the constants of its scripts.

Never runs or imports what it finds, and never changes it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MODELS_FILE = "arena_hard_models_to_test.txt"
SCRIPT = "automate_arena_hard_judgment.py"


@dataclass
class Found:
    """What was found, as values for flock-hpc.yaml, and a line about each."""

    values: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def take(self, key: str, value: object, source: object) -> None:
        if value not in (None, "", []) and key not in self.values:
            self.values[key] = value
            shown = ", ".join(f"{k}={v}" for k, v in value) if key == "slurm" and isinstance(value, list) else value
            self.notes.append(f"{key}: {shown}  (from {source})")


def _checkouts(root: Path) -> Iterator[Path]:
    if (root / "gen_judgment.py").is_file():
        yield root
    for path in [root / "arena-hard-auto", *sorted(p for p in root.iterdir() if p.is_dir())]:
        if not path.name.startswith(".") and (path / "data").is_dir() and any(path.glob("data/*/question.jsonl")):
            yield path


def _constants(path: Path) -> dict[str, object]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            try:
                found[name] = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                found[name] = _joined(node.value, found)
    return found


def _joined(node: ast.expr, known: dict[str, object]) -> str | None:
    """An f-string of constants that are known already."""
    if not isinstance(node, ast.JoinedStr):
        return None
    parts = []
    for value in node.values:
        if isinstance(value, ast.Constant):
            parts.append(str(value.value))
        elif isinstance(value, ast.FormattedValue) and isinstance(value.value, ast.Name):
            known_value = known.get(value.value.id)
            if not isinstance(known_value, str):
                return None
            parts.append(known_value)
        else:
            return None
    return "".join(parts)


def _baseline(constants: dict[str, object]) -> str | None:
    plain = constants.get("BASELINE_MODEL")
    if isinstance(plain, str):
        return plain
    configs, default = constants.get("BASELINE_CONFIGS"), constants.get("DEFAULT_BASELINE")
    value = configs.get(default) if isinstance(configs, dict) else None
    return value if isinstance(value, str) else None


_SBATCH = {"mem": "mem", "time": "time", "cpus-per-task": "cpus_per_task", "partition": "partition",
           "account": "account", "exclude": "exclude", "qos": "qos"}


def _resources(text: str) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    for option, value in re.findall(r"^#SBATCH\s+--([\w-]+)=(\S+)", text, re.MULTILINE):
        if option in _SBATCH and "{" not in value:
            found[_SBATCH[option]] = int(value) if option == "cpus-per-task" and value.isdigit() else value
    gpus = re.search(r"^#SBATCH\s+--gres=gpu:(?:\w+:)?(\d+)", text, re.MULTILINE)
    return {**found, "gpus": int(gpus[1])} if gpus else found


def _substitute(text: str, constants: dict[str, object]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: str(constants.get(match[1], match[0])), text)


def _script(found: Found, path: Path) -> None:
    constants = _constants(path)
    found.take("judge_name", constants.get("JUDGE_MODEL"), f"{path.name}: JUDGE_MODEL")
    found.take("judge_path", constants.get("JUDGE_PATH"), f"{path.name}: JUDGE_PATH")
    found.take("baseline", _baseline(constants), f"{path.name}: its baseline")
    text = _substitute(path.read_text(encoding="utf-8", errors="replace"), constants)
    resources = _resources(text)
    if resources:
        found.take("slurm", sorted(resources.items()), f"{path.name}: #SBATCH lines")
    found.take("modules", re.findall(r"^\s*module load (\S+)", text, re.MULTILINE), f"{path.name}: module load")
    venv = re.search(r"^\s*source (/\S+)/bin/activate", text, re.MULTILINE)
    found.take("venv", venv[1] if venv else None, f"{path.name}: source .../bin/activate")
    length = re.search(r"--max-model-len (\d+)", text)
    found.take("max_model_len", int(length[1]) if length else None, f"{path.name}: --max-model-len")
    template = re.search(r"--chat-template (/[^\s\\]+)", text)
    found.take("server_args", ["--chat-template", template[1]] if template else None, f"{path.name}: --chat-template")
    prefix = re.search(r"for (\w+) in .* if \1\.startswith\(['\"]([\w.-]+)['\"]\)", text)
    found.take("models_pattern", f"{prefix[2]}*" if prefix else None, f"{path.name}: --all")


def adopt(root: Path) -> Found:
    """Look through a folder that the incumbent's scripts were used in."""
    found = Found()
    checkout = next(_checkouts(root), None)
    if checkout is not None:
        found.take("arena_hard", os.path.relpath(checkout, root), checkout)
        benches = sorted(path.parent.name for path in checkout.glob("data/*/question.jsonl"))
        preferred = "arena-hard-v2.0" if "arena-hard-v2.0" in benches else benches[0] if benches else None
        found.take("bench", preferred, checkout / "data")
        for kind in ("model_answer", "model_judgment"):
            count = sum(1 for _ in (checkout / "data" / (preferred or "")).glob(f"{kind}/**/*.jsonl"))
            found.notes.append(f"{count} files under data/{preferred}/{kind}, taken as they are")
            if kind == "model_judgment" and count:
                found.take("honour_rows", "any-prompt", "the judgments there")
    places = [root, root / "scripts", *([checkout, checkout / "scripts"] if checkout else [])]
    for place in places:
        if (place / MODELS_FILE).is_file():
            found.take("models_file", os.path.relpath(place / MODELS_FILE, root), place)
        if (place / SCRIPT).is_file() and "judge_name" not in found.values:
            _script(found, place / SCRIPT)
    return found
