"""`init` and `init --adopt`: what is made, what is found, and that nothing of the user's is changed."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from automate.arena.context import load_match
from automate.arena.counting.progress import Progress
from automate.campaign.adopt import adopt
from automate.cli.main import cli
from automate.resources import configs_dir
from automate.workspace import open_workspace

SCRIPT = '''
ROOT = "/scratch/me"
JUDGE_MODEL = "big-judge"
JUDGE_PATH = f"{ROOT}/models/big"
BASELINE_CONFIGS = {"instruct": "example-baseline", "base": "other"}
DEFAULT_BASELINE = "instruct"


def create_judgment_slurm_script():
    return f"""#!/bin/bash
#SBATCH --cpus-per-task=12
#SBATCH --mem=80G
#SBATCH --time=01:45:00
#SBATCH --partition=gpus
#SBATCH --gres=gpu:2
#SBATCH --output={ROOT}/x.out
module load CUDA/12.4.0
source {ROOT}/env/bin/activate
vllm --max-model-len 26304 --chat-template {ROOT}/t.jinja
"""


models = [m for m in {} if m.startswith('example-')]
'''
BENCH = "arena-hard-auto/data/arena-hard-v2.0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(configs_dir() / "example", tmp_path / "w")
    (tmp_path / "w" / "automate_arena_hard_judgment.py").write_text(SCRIPT)
    return tmp_path / "w"


def test_everything_of_the_script_is_found(folder: Path) -> None:
    values = adopt(folder).values
    assert values["judge_name"] == "big-judge"
    assert values["judge_path"] == "/scratch/me/models/big"
    assert values["baseline"] == "example-baseline"
    assert values["arena_hard"] == "arena-hard-auto"
    assert values["modules"] == ["CUDA/12.4.0"]
    assert values["venv"] == "/scratch/me/env"
    assert values["max_model_len"] == 26304
    assert values["server_args"] == ["--chat-template", "/scratch/me/t.jinja"]
    assert values["models_pattern"] == "example-*"
    assert dict(values["slurm"]) == {  # type: ignore[call-overload]
        "cpus_per_task": 12, "gpus": 2, "mem": "80G", "partition": "gpus", "time": "01:45:00"}


def test_adopted_settings_are_good_and_nothing_is_overwritten(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = CliRunner().invoke(cli, ["init", str(folder), "--adopt", "--cluster", "capella"])
    assert done.exit_code == 0, done.output
    settings = open_workspace(folder).settings
    assert settings.slurm.gpus == 2
    assert settings.judge.path == "/scratch/me/models/big"
    assert settings.judge.environment.venv == "/scratch/me/env"
    assert {path: path.read_bytes() for path in before} == before
    again = CliRunner().invoke(cli, ["init", str(folder)])
    assert again.exception is not None
    assert "already" in str(again.exception)


def judged(folder: Path, wording: str) -> None:
    """A judgment file of two rows whose prompts hold the very answers, in other words around them."""
    texts = {}
    for model in ("example-baseline", "example-final"):
        lines = (folder / BENCH / "model_answer" / f"{model}.jsonl").read_text(encoding="utf-8").split("\n")
        texts[model] = {row["uid"]: row["messages"][-1]["content"]["answer"] for row in map(json.loads, lines[:-1])}
    questions = (folder / BENCH / "question.jsonl").read_text(encoding="utf-8").split("\n")[:2]
    rows = []
    for question in map(json.loads, questions):
        uid = question["uid"]
        pair = texts["example-baseline"][uid], texts["example-final"][uid]
        games = [{"score": "A>B", "judgment": {"answer": "[[A>B]]"}, "prompt": [
            {"role": "system", "content": "judge"},
            {"role": "user", "content": wording.format(q=question["prompt"], a=first, b=second)}]}
            for first, second in (pair, pair[::-1])]
        rows.append({"uid": uid, "category": question["category"], "judge": "big-judge", "model": "example-final",
                     "baseline": "example-baseline", "games": games})
    path = folder / BENCH / "model_judgment" / "big-judge" / "compared_with_instruct" / "example-final.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.parametrize(("wording", "done"), [("{q}\\n{a}\\n{b}", 4), ("{q} {a}", 0)])
def test_rows_judged_in_other_words_are_honoured_when_adopted(folder: Path, wording: str, done: int) -> None:
    judged(folder, wording)
    CliRunner().invoke(cli, ["init", str(folder), "--adopt"])
    workspace = open_workspace(folder)
    assert workspace.settings.honour_rows == "any-prompt"
    status = Progress(workspace, load_match(workspace), ["example-final"]).models["example-final"].status
    assert (status.done, status.other_prompt, status.unverified) == (done, done, 0)
    strict = open_workspace(folder, {"honour_rows": "same-prompt"})
    assert Progress(strict, load_match(strict), ["example-final"]).models["example-final"].status.done == 0


def row_of(folder: Path, **changes: object) -> dict[str, object]:
    """A scores-only row of the example, with some keys changed."""
    row: dict[str, object] = {
        "uid": "0253417860914427", "category": "hard_prompt", "judge": "big-judge", "model": "example-final",
        "baseline": "example-baseline", "games": [{"score": "A>B"}, {"score": "B>A"}]}
    path = folder / BENCH / "model_judgment" / "big-judge" / "example-final.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**row, **changes}) + "\n")
    return row


@pytest.mark.parametrize(("changes", "done"), [
    ({}, 2), ({"model": "org/example-final"}, 2), ({"model": "another"}, 0), ({"judge": "another"}, 0),
    ({"baseline": "another"}, 0),
    ({"games": [{"score": "A>B", "user_prompt": "other texts", "judgment": "[[A>B]]"}] * 2}, 0),
])
def test_rows_of_others_do_not_count(folder: Path, changes: dict[str, object], done: int) -> None:
    row_of(folder, **changes)
    CliRunner().invoke(cli, ["init", str(folder), "--adopt"])
    workspace = open_workspace(folder)
    entry = Progress(workspace, load_match(workspace), ["example-final"]).models["example-final"]
    assert entry.status.done == done
    assert bool(entry.problems) == (("model" in changes and done == 0) or "judge" in changes)
