#!/usr/bin/env python3
"""Make docs/monitor.svg: the live view at one moment of a real campaign with a rehearsal judge on this machine.

    .venv/bin/python scripts/make-monitor-picture.py [FILE.svg]

Takes about two minutes. The campaign is played in a temporary folder and ended when the picture is taken. Its verdicts
mean nothing; its jobs, logs, journals and numbers are those of any campaign. Only the machine's name is replaced.
"""

from __future__ import annotations

import io
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import yaml
from rich.console import Console
from rich.terminal_theme import MONOKAI

from automate.campaign.monitoring.monitor import Snapshot, Watch
from automate.cli.views.dashboard import view
from automate.cli.views.marks import UNICODE
from automate.workspace import open_workspace

PROJECT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT = 122, 36
SHARE = 0.35
"""The picture is taken when so much of the campaign is played."""
SLOW = {"latency": 3.0, "latency_per_token": 0.03, "load_seconds": 8, "no_label": 0.05, "kv_tokens": 24_000}
BROKEN = {"load_seconds": 1, "die_while_loading": True}


def models() -> list[str]:
    """Checkpoints of three training runs."""
    return [f"tulu3-8b-rank64-alpha1e5-{run:03d}-{step}" for run in (1, 5, 10)
            for step in ("step6000", "step12000", "step24000", "step48000", "final")]


def make_workspace(root: Path) -> None:
    """The bundled example, its models' answers taken for all of the models."""
    shutil.copytree(PROJECT / "configs" / "example", root)
    answers = next(root.glob("arena-hard-auto/data/*/model_answer"))
    given = sorted(path for path in answers.glob("*.jsonl") if "baseline" not in path.name)
    for number, name in enumerate(models()):
        source = given[number % len(given)]
        text = source.read_text(encoding="utf-8").replace(f'"{source.stem}"', f'"{name}"')
        (answers / f"{name}.jsonl").write_text(text, encoding="utf-8")
    known = next(root.glob("arena-hard-auto/config/api_config.yaml"))
    entry = next(iter(yaml.safe_load(known.read_text(encoding="utf-8")).values()))
    known.write_text(yaml.safe_dump(dict.fromkeys(models(), entry)), encoding="utf-8")
    for path in given:
        path.unlink()
    (root / "arena_hard_models_to_test.txt").write_text("\n".join(models()) + "\n", encoding="utf-8")


def settings(root: Path, rehearsal: Mapping[str, float]) -> None:
    """Settings with a rehearsal judge that behaves in this way."""
    (root / "flock-hpc.yaml").write_text(yaml.safe_dump({
        "cluster": "local", "baseline": "example-baseline", "batch_size": 2,
        "judge": {"kind": "rehearsal", "name": "llama3.1-70b-instruct-fp8", "rehearsal": {**rehearsal},
                  "concurrency": 8, "server": {"restarts": 1}},
        "limits": {"max_parallel": 2, "claim_stale": 5},
    }), encoding="utf-8")


def flock(root: Path, *words: str) -> None:
    """Run `flock-hpc WORDS` in the workspace."""
    done = subprocess.run([sys.executable, "-m", "automate", *words], cwd=root, capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise SystemExit(f"flock-hpc {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def play(root: Path) -> Snapshot:
    """A batch that fails, then the rest until the moment of the picture."""
    names = models()
    settings(root, BROKEN)
    flock(root, "judge", "--models", *names[-1:], "--submit")
    watch = Watch(lambda: open_workspace(root))
    wait_for(watch, lambda snap: bool(snap.failures))
    settings(root, SLOW)
    flock(root, "judge", "--models", *names[:-1], "--submit")
    return wait_for(watch, in_the_middle)


def in_the_middle(snap: Snapshot) -> bool:
    """Whether two jobs play, one waits, and the servers have just said how fast they are."""
    rates = snap.rates
    return bool(snap.totals["games"] > SHARE * snap.totals["wanted"] and snap.pending and rates.requests_running
                and rates.output_tokens_per_second and all(
                    job.phase == "playing" and job.rate for job in snap.running))


def wait_for(watch: Watch, condition: Callable[[Snapshot], bool], seconds: float = 400) -> Snapshot:
    """Look every half second until a condition holds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        snap = watch.look()
        if condition(snap):
            return snap
        time.sleep(0.5)
    raise SystemExit("the campaign never came to the moment of the picture")


def without_name(snap: Snapshot) -> Snapshot:
    """The picture without this machine's name."""
    host = socket.gethostname()
    jobs = {part: tuple(replace(job, nodes=job.nodes.replace(host, "c1")) for job in getattr(snap, part))
            for part in ("running", "pending")}
    failures = tuple(replace(one, node=one.node.replace(host, "c1")) for one in snap.failures)
    return replace(snap, running=jobs["running"], pending=jobs["pending"], failures=failures)


def draw(snap: Snapshot, file: Path) -> None:
    """Write the view as an SVG file."""
    console = Console(record=True, width=WIDTH, height=HEIGHT, force_terminal=True, color_system="truecolor",
                      file=io.StringIO())
    for line in view(snap, WIDTH - 2, HEIGHT, UNICODE):
        console.print(line, soft_wrap=True, highlight=False)
    svg = console.export_svg(title="flock-hpc monitor --watch", theme=MONOKAI, unique_id="monitor")
    svg = re.sub(r"@font-face \{.*?\}\n?", "", svg, flags=re.DOTALL)  # nothing is loaded from the network
    svg = svg.replace("Fira Code", "'DejaVu Sans Mono', Menlo, Consolas")
    file.write_text(svg, encoding="utf-8")


def main() -> None:
    """Play, take the picture, end what still runs."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT / "docs" / "monitor.svg"
    root = Path(tempfile.mkdtemp()) / "campaign"
    try:
        make_workspace(root)
        draw(without_name(play(root)), file)
        print(f"{file}: {file.stat().st_size / 1024:.0f} KB")
    finally:
        if (root / "flock-hpc.yaml").is_file():
            subprocess.run([sys.executable, "-m", "automate", "cancel"], cwd=root, capture_output=True, check=False)
        time.sleep(5)  # jobs end before their folder does
        shutil.rmtree(root.parent, ignore_errors=True)


if __name__ == "__main__":
    main()
