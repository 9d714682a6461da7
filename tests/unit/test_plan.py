"""`flock-hpc plan`: it counts what is there, says what it rests on, and leaves everything as it was."""

from __future__ import annotations

import json
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from automate.arena.context import load_answers, load_match
from automate.arena.counting.progress import Progress
from automate.campaign.forecasts.forecast import rates_of
from automate.campaign.forecasts.planning import partition_limit
from automate.campaign.forecasts.prompt_sizes import prompt_sizes, tokenizer_of
from automate.campaign.forecasts.rates import assumed
from automate.cli.main import cli
from automate.cluster.site import parse_partitions
from automate.errors import ClusterError
from automate.workspace import Workspace, open_workspace
from tests.unit.support import ROOT, make_settings

MODELS = ("example-step1000", "example-step2000", "example-final")
JUDGE = "neuralmagic-llama3.1-70b-instruct-fp8"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace on the bundled example, with a judge of 70B on one GPU."""
    shutil.copytree(ROOT / "configs" / "example" / "arena-hard-auto", tmp_path / "arena-hard-auto",
                    copy_function=shutil.copyfile)
    (tmp_path / "arena_hard_models_to_test.txt").write_text("\n".join(MODELS) + "\n")
    change(tmp_path)
    return tmp_path


def change(root: Path, **values: Any) -> None:
    own = {"baseline": "example-baseline", "executor": "local", "slurm": {"gpus": 1, "time": "02:00:00"},
           "judge": {"name": JUDGE}, **values}
    (root / "flock-hpc.yaml").write_text(yaml.safe_dump(own))


def plan(root: Path, *args: str) -> str:
    done = CliRunner().invoke(cli, ["plan", "--workspace", str(root), *args], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def as_json(root: Path, *args: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["plan", "--json", "--workspace", str(root), *args], catch_exceptions=False)
    found: dict[str, Any] = json.loads(done.output)
    return found


def write_run(root: Path, **more: Any) -> None:
    record = {"judge": JUDGE, "phase": "ended", "status": 0, "gpus": 1, "played": 1500, "outcomes": {"verdict": 1500},
              "usage": [1_500_000, 300_000, 0], "play_seconds": 600.0, "seconds": 800.0, "models": [MODELS[0]],
              "load": [{"seconds": 150.0}], "game_seconds": {"median": 10.0, "p95": 20.0}, **more}
    folder = root / ".flock-hpc" / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"r{len(list(folder.iterdir()))}.json").write_bytes(orjson.dumps(record))


def files(root: Path) -> dict[str, bytes]:
    """Every file but the cache."""
    return {str(path): path.read_bytes() for path in root.rglob("*")
            if path.is_file() and ".flock-hpc/cache" not in str(path)}


def counted(workspace: Workspace) -> Any:
    progress = Progress(workspace, load_match(workspace), MODELS)
    return prompt_sizes(workspace, progress, MODELS, rates_of(workspace)), progress


# --- what it says -----------------------------------------------------------------------------------


def test_a_plan_leaves_everything_as_it_was(root: Path) -> None:
    before = files(root)
    plan(root, "--batch-size", "1")
    as_json(root)
    assert files(root) == before


def test_without_history_it_says_that_its_rates_are_assumed(root: Path) -> None:
    said = plan(root, "--batch-size", "2")
    assert "72 games" in said
    assert "No batch of this judge on these GPUs has ended yet: rates are assumed, and the interval is wide." in said
    for name in ("bytes a token", "verdict", "rates", "from the prefix cache", "load", "batches at once", "queue"):
        assert name in said
    assert "GPU-hours" in said
    assert "at most, by the time limit: 4" in said


def test_a_batch_that_has_ended_corrects_it_and_narrows_the_interval(root: Path) -> None:
    before = as_json(root)["forecast"]["seconds"]
    write_run(root, play_seconds=6000.0, seconds=6200.0)
    said, after = plan(root), as_json(root)["forecast"]["seconds"]
    assert "has ended yet" not in said
    assert "150 s a start" in said
    assert "200 tokens" in said
    assert after["high"] / after["low"] < before["high"] / before["low"]


def test_smaller_batches_pay_for_more_loads(root: Path) -> None:
    one, three = as_json(root, "--batch-size", "3")["forecast"], as_json(root, "--batch-size", "1")["forecast"]
    assert len(three["batches"]) == 3
    assert three["gpu_hours"]["mid"] - one["gpu_hours"]["mid"] == pytest.approx(2 * (330 + 15) / 3600, rel=0.1)


def test_more_at_once_end_earlier_for_the_same_hours(root: Path) -> None:
    one = as_json(root, "--batch-size", "1", "--max-parallel", "1")["forecast"]
    three = as_json(root, "--batch-size", "1", "--max-parallel", "3")["forecast"]
    assert three["seconds"]["mid"] < one["seconds"]["mid"] / 2
    assert three["gpu_hours"] == one["gpu_hours"]


def test_a_limit_that_is_shorter_than_loading_is_said(root: Path) -> None:
    change(root, slurm={"gpus": 1, "time": "00:03:00"})
    said = plan(root)
    assert "✘ the time limit (3 min) is too short: loading takes about 5 min" in said
    assert "never ends" in said
    assert as_json(root)["forecast"]["batches"][0]["starts"] is None


def test_a_limit_that_ends_the_batch_in_the_middle_is_counted(root: Path) -> None:
    write_run(root, play_seconds=60_000.0, seconds=60_200.0)
    change(root, slurm={"gpus": 1, "time": "00:15:00"})
    low, mid, high = as_json(root)["forecast"]["batches"][0]["starts"]
    assert 2 <= low <= mid <= high


def test_a_paid_judge_has_a_price_and_no_gpu_hours(root: Path) -> None:
    judge = {"kind": "openai", "name": "paid", "base_url": "https://host/v1", "max_cost": 0.01,
             "price": {"input_per_million": 10, "output_per_million": 30}, "requests_per_minute": 60}
    change(root, judge=judge)
    said, found = plan(root), as_json(root)
    tokens = found["forecast"]["batches"][0]["size"]
    assert found["money"]["mid"] == pytest.approx((tokens["prompt_tokens"] * 10 + tokens["output_tokens"] * 30) / 1e6)
    assert "more than judge.max_cost (0.01): the rest will stay due" in said
    assert "none: no GPU is asked for" in said
    assert found["forecast"]["batches"][0]["play"]["mid"] >= 72


def test_a_model_without_answers_is_named_and_the_others_are_planned(root: Path) -> None:
    (root / "arena-hard-auto" / "data" / "arena-hard-v2.0" / "model_answer" / f"{MODELS[0]}.jsonl").unlink()
    said = plan(root)
    assert f"without games, as answers are missing: {MODELS[0]}" in said
    assert "48 games" in said


def test_where_nothing_is_due_there_is_nothing_to_forecast(root: Path) -> None:
    (root / "arena_hard_models_to_test.txt").write_text("")
    assert "Nothing to do: no game is due." in plan(root)
    assert as_json(root)["proposal"] is None


# --- tokens -----------------------------------------------------------------------------------------


def test_the_bytes_of_the_due_games_prompts_are_counted(root: Path) -> None:
    workspace = open_workspace(root)
    found, progress = counted(workspace)
    match = progress.match
    for model in MODELS:
        answers = load_answers(workspace, model)
        assert answers is not None
        wanted = sum(len(str(message["content"]).encode()) for question in match.questions for order in (1, 2)
                     for message in match.messages(answers, question, order))
        assert found.bytes[model] == wanted
        assert found.games[model] == 24
    assert found.per_token.value == 4.0


def test_usage_of_games_played_says_how_many_bytes_a_token_has(root: Path) -> None:
    workspace = open_workspace(root)
    mean = counted(workspace)[0].mean[MODELS[0]]
    write_run(root, usage=[1500 * mean / 3.2, 300_000, 0])
    assert counted(workspace)[0].per_token.value == pytest.approx(3.2)
    other = Path(root / ".flock-hpc" / "runs" / "r0.json")
    other.write_bytes(other.read_bytes().replace(MODELS[0].encode(), b"somebody-else"))
    assert counted(workspace)[0].per_token.value == pytest.approx(3.2, rel=0.3)


def test_a_tokenizer_on_disk_is_asked_where_its_package_is_there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "judge"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{}")
    change(root, judge={"name": JUDGE, "path": str(folder)})
    workspace = open_workspace(root)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert tokenizer_of(folder) is None
    assert counted(workspace)[0].per_token.value == 4.0

    class Words:
        @staticmethod
        def from_file(path: str) -> Words:
            return Words()

        def encode(self, text: str, add_special_tokens: bool = True) -> Any:
            return types.SimpleNamespace(ids=text.encode()[::5])

    monkeypatch.setitem(sys.modules, "tokenizers", types.SimpleNamespace(Tokenizer=Words))
    found = counted(workspace)[0].per_token
    assert found.value == pytest.approx(5.0, rel=0.01)
    assert "tokenizer" in found.source


def test_a_broken_tokenizer_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.json").write_text("not one")
    monkeypatch.setitem(sys.modules, "tokenizers", types.SimpleNamespace())
    assert tokenizer_of(tmp_path) is None
    assert tokenizer_of(None) is None


def test_the_weights_on_disk_say_how_long_loading_takes(root: Path) -> None:
    assert assumed(make_settings(), 70_000_000_000).load.source == "assumed: 70 GB at 1 GB/s, and 60 s"


# --- the partition ----------------------------------------------------------------------------------


def test_the_partitions_limit_is_the_one_that_the_settings_name(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ("PartitionName=short Default=YES MaxTime=01:00:00 TotalNodes=2 State=UP\n"
            "PartitionName=long Default=NO MaxTime=7-00:00:00 TotalNodes=2 State=UP\n")
    monkeypatch.setattr("automate.campaign.forecasts.planning.partitions", lambda: parse_partitions(text))
    assert partition_limit(make_settings()) == 3600
    assert partition_limit(make_settings(slurm={"partition": "long"})) == 7 * 86400
    assert partition_limit(make_settings(slurm={"partition": "gone"})) == float("inf")

    def down() -> Any:
        raise ClusterError("no answer")

    monkeypatch.setattr("automate.campaign.forecasts.planning.partitions", down)
    assert partition_limit(make_settings()) == float("inf")


# --- judge --dry-run --------------------------------------------------------------------------------


def test_a_dry_run_shows_the_same_forecast(root: Path) -> None:
    change(root, judge={"kind": "rehearsal", "rehearsal": {"latency": 3.0, "kv_tokens": 9000, "load_seconds": 40}})
    planned = plan(root, "--batch-size", "2")
    done = CliRunner().invoke(cli, ["judge", "--dry-run", "--workspace", str(root), "--batch-size", "2"],
                              catch_exceptions=False)
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    forecast = planned.partition("72 games, about ")[2].partition("Proposed:")[0]
    assert len(forecast) > 300
    assert forecast in said
    assert "nothing was submitted" in said


def test_the_proposals_of_two_batch_sizes_agree(root: Path) -> None:
    change(root, gpu={"prompt_tokens_per_second": 1000, "output_tokens_per_second": 20})
    one = as_json(root, "--batch-size", "1")["proposal"]
    assert one["batch_size"] == 3
    then = as_json(root, "--batch-size", str(one["batch_size"]))["proposal"]
    assert [one[key] for key in ("time", "batch_size", "parallel")] == [
        then[key] for key in ("time", "batch_size", "parallel")]


def test_notes_are_indented_where_they_go_on_in_another_line(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automate.cli.checks.make_console", lambda: Console(width=80, highlight=False))
    done = CliRunner().invoke(cli, ["plan", "--workspace", str(root)])
    after = done.output.partition("Proposed:")[2].splitlines()[1:]
    assert len(after) > 3
    assert all(line.startswith("  ") and len(line) <= 80 for line in after if line)
    assert any(line.startswith("    ") for line in after)


@pytest.mark.parametrize(("make", "why"), [
    (lambda folder: None, "no folder judge on this machine"),
    (lambda folder: folder.mkdir(), "there is no config.json in"),
    (lambda folder: (folder.mkdir(), (folder / "config.json").write_text("{")), "it is not a JSON object"),
    (lambda folder: (folder.mkdir(), (folder / "config.json").write_text("{}")), "there are no weights in"),
])
def test_why_the_size_of_the_weights_is_not_known_is_said(root: Path, make: Any, why: str) -> None:
    make(root / "judge")
    change(root, judge={"name": JUDGE, "path": "judge"})
    [load] = [one for one in as_json(root)["forecast"]["assumptions"] if one["name"] == "load"]
    assert load["value"] == "300 s a start"
    assert why in load["source"]
