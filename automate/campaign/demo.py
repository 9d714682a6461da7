"""The demo: a whole campaign on bundled examples with a rehearsal judge, on any machine.

Never needs a cluster, a GPU or the network."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from automate.arena.counting.progress import Progress
from automate.arena.games import Recorded
from automate.arena.verdict import SHORT
from automate.campaign.setup import make_workspace
from automate.errors import StorageError, WorkspaceError
from automate.journal import replace_file
from automate.resources import configs_dir
from automate.workspace import SETTINGS_FILE, Workspace, open_workspace

DEMO_SETTINGS = r"""# The demo's settings: a rehearsal judge, which needs no GPU, and whose verdicts mean nothing.
cluster: local
baseline: example-baseline
batch_size: 2
judge:
  kind: rehearsal
  name: example-judge
  rehearsal:
    latency: 0.2
    load_seconds: 1
    short_label: 0.1
    no_label: 0.1
  concurrency: 4
generate:
  kind: rehearsal
curves:
  pattern: '(?P<run>example)-(?P<step>(?:step\d+)?(?:final)?)'
limits:
  claim_stale: 5
"""


ENDPOINT = """
{}:
  model: "{}"
  endpoints: null
  api_type: openai
  parallel: 8
  max_tokens: 4096
  temperature: 0.0
"""
UNANSWERED = "example-step3000"
"""A model of the demo whose answers are not bundled."""


def make_demo(root: Path, *more: str) -> None:
    """Make the demo's workspace at `root`, with `more` models; a demo that is there already is used again."""
    settings = root / SETTINGS_FILE
    if settings.is_file():
        if "example-judge" not in settings.read_text(encoding="utf-8"):
            raise WorkspaceError("there is a workspace already that is not the demo's", where=str(root),
                                 todo="name another folder: flock-hpc demo DIRECTORY")
        return
    if root.is_dir() and any(root.iterdir()):
        raise WorkspaceError("the demo's folder is not empty", where=str(root),
                             todo="name another folder: flock-hpc demo DIRECTORY")
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(configs_dir() / "example", root, dirs_exist_ok=True)
    except OSError as error:
        raise StorageError.of(error, root, "make the demo's workspace") from error
    make_workspace(root, {"models_file": "arena_hard_models_to_test.txt"}, "local")
    replace_file(settings, DEMO_SETTINGS.encode())
    workspace = open_workspace(root)
    for path, entry in ((workspace.models_file, "{}\n"), (workspace.api_config, ENDPOINT)):
        replace_file(path, path.read_bytes() + "".join(entry.replace("{}", name) for name in more).encode())


@dataclass(frozen=True)
class Tally:
    """How a model's games ended, seen from the model, whichever side it was shown on."""

    model: str
    win_much: int
    win: int
    tie: int
    loss: int
    loss_much: int
    null: int


_BY_MODEL = ("win_much", "win", "tie", "loss", "loss_much")
_AS_A = {"A>>B": 0, "A>B": 1, "A=B": 2, "B=A": 2, "B>A": 3, "B>>A": 4, "B<<A": 0, "B<A": 1, "A<B": 3, "A<<B": 4}


def outcome_of(label: str, order: int) -> str:
    """A label seen from the model: it is A in order 2, and B in order 1."""
    place = _AS_A[SHORT.get(label, label)]
    return _BY_MODEL[place if order == 2 else 4 - place]


def tally(progress: Progress) -> Sequence[Tally]:
    """Count each model's outcomes."""
    found = []
    for model, entry in progress.models.items():
        counts: Counter[str] = Counter()
        for game in entry.games:
            counts[_outcome(entry.recorded, game.order, entry.recorded.state(game, progress.attempts).record)] += 1
        much, win, tie, loss, lost_much = (counts[name] for name in _BY_MODEL)
        found.append(Tally(model, much, win, tie, loss, lost_much, counts["null"]))
    return found


def _outcome(recorded: Recorded, order: int, record: dict[str, object] | None) -> str:
    if record is None or record.get("outcome") != "verdict":
        return "null"
    return outcome_of(str(record["label"]), order)


def models_of(workspace: Workspace) -> tuple[str, ...]:
    """The demo's models, from its models file."""
    from automate.arena.benchmark import read_models_file

    return read_models_file(workspace.models_file).names
