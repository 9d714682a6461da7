"""`report` as a command, and what it knows of a workspace's judge and jobs; what is typed wrong is said."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from automate.campaign.reporting import report_of_workspace
from automate.cli.main import cli
from automate.errors import DataError
from automate.journal import write_json
from automate.results.boards import Options
from automate.results.reading.folder import of_data
from automate.results.reporting.facts import of_data as facts_of_data
from automate.results.reporting.facts import of_workspace as facts_of_workspace
from automate.results.reporting.report import write_report
from automate.workspace import open_workspace
from tests.unit.report_support import BENCH, DOWN, JUDGE, LEVEL, SPLIT, UP, Models, Page, write_bench

MADE = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
MODELS: Models = {"one": [UP, UP, LEVEL, SPLIT] * 5, "two": [DOWN, DOWN, LEVEL, (None, "A>B")] * 5}


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """A workspace with judgments of a judge whose jobs left records."""
    write_bench(tmp_path / "checkout", MODELS)
    (tmp_path / "flock-hpc.yaml").write_text(
        f"arena_hard: checkout\nbench: {BENCH}\nbaseline: base\nresults: {{rounds: 60, seed: 7}}\n"
        f"judge: {{name: {JUDGE}, path: org/judge, "
        "server: {command: [vllm, serve, --hf-token, hf_abcdefgh12345678], args: [--seed, '3']}}\n")
    for number in (1, 2):
        write_json(tmp_path / ".flock-hpc" / "runs" / f"{number}.json", {
            "judge": JUDGE, "phase": "ended", "started": 1.7e9, "ended": 1.7e9 + 5400, "updated": 1.7e9 + 5400,
            "seconds": 5400, "gpus": 2, "gpu": "H100", "played": 60, "usage": [1000, 200, 0]})
    return tmp_path


def test_a_workspace_tells_where_its_numbers_come_from(campaign: Path) -> None:
    log = campaign / "logs" / "arena-hard" / "judgment_batches" / "judge-batch-1_7_x.server.log"
    log.parent.mkdir(parents=True)
    log.write_text("INFO [core.py:1] Initializing a V1 LLM engine (v0.31.1+cpu) with config: ...\n")
    path = report_of_workspace(open_workspace(campaign), made=MADE)
    text = Page(path.read_text(encoding="utf-8")).text
    assert path == campaign / "results" / "report.html"
    for words in ("named:org/judge (fingerprint)", "GPU-hours 6.00", "H100 (2 starts)", "prompt tokens 2,000",
                  "rounds 60", "seed 7", "vllm serve --hf-token [removed] --seed 3", "first start 2023-11-14 22:13 UTC",
                  "not Arena-Hard's prompt", "vLLM 0.31.1+cpu"):
        assert words in text, f"{words} not in {text}"
    assert "hf_abcdefgh" not in path.read_text(encoding="utf-8")


def test_jobs_of_answers_are_told_apart(campaign: Path) -> None:
    write_json(campaign / ".flock-hpc" / "runs" / "5.json", {
        "kind": "generate", "phase": "ended", "started": 1.7e9, "updated": 1.7e9, "seconds": 1800, "gpus": 1})
    groups = {group.title: group for group in facts_of_workspace(open_workspace(campaign)).groups}
    facts = {title: {fact.name: fact.value for fact in groups[title].facts} for title in ("Answers", "Judging")}
    assert (facts["Answers"]["GPU-hours"], facts["Judging"]["GPU-hours"]) == ("0.50", "6.00")
    assert facts["Answers"]["server"] == "vllm serve"


def test_records_that_say_nonsense_are_no_trouble(campaign: Path) -> None:
    write_json(campaign / ".flock-hpc" / "runs" / "3.json", {
        "judge": JUDGE, "usage": ["x", None], "seconds": "soon", "gpus": -1, "started": None, "gpu": ["odd"]})
    (campaign / ".flock-hpc" / "runs" / "4.json").write_text("{torn")
    groups = {group.title: group for group in facts_of_workspace(open_workspace(campaign)).groups}
    facts = {fact.name: fact.value for fact in groups["Judging"].facts}
    assert (facts["starts of jobs"], facts["GPU-hours"]) == ("3", "6.00")


def test_a_workspace_without_jobs_and_another_judge(campaign: Path) -> None:
    for file in (campaign / ".flock-hpc" / "runs").iterdir():
        file.unlink()
    groups = {group.title: group for group in facts_of_workspace(open_workspace(campaign), [JUDGE, "other"]).groups}
    assert groups["Judging"].facts[0].value is None
    assert groups["Judge other"].facts[0].value is None


def test_a_rehearsal_is_named(tmp_path: Path) -> None:
    assert "mean nothing" in facts_of_data(["x-rehearsal"]).notices[0]
    assert facts_of_data(["x"]).notices == ()


# --- the command ----------------------------------------------------------------------------------
def _run(*args: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["report", *args], catch_exceptions=True)
    return done.exit_code, done.output + (str(done.exception) if done.exception else "")


def test_the_command_on_a_folder(tmp_path: Path) -> None:
    write_bench(tmp_path, MODELS)
    out = tmp_path / "deep" / "r.html"
    status, text = _run("--data", str(tmp_path), "--output", str(out), "--rounds", "20", "--games", "all",
                        "--confidence", "90", "--seed", "5", "--style-control", "length")
    assert status == 0, text
    assert f"wrote {out}" in text
    page = Page(out.read_text(encoding="utf-8")).text
    assert "90 % interval" in page
    assert "style control length" in page


def test_the_command_in_a_workspace(campaign: Path) -> None:
    status, text = _run("--workspace", str(campaign), "--games", "2")
    assert status == 0, text
    assert (campaign / "results" / "report.html").is_file()


@pytest.mark.parametrize(("args", "words"), [
    (("--games", "some"), "neither a number"), (("--games", "-1"), "neither a number"), (("--rounds", "1"), "10<=x"),
    (("--workspace", "x", "--data", "y"), "don't go together"), (("--confidence", "100"), "0<x<100")])
def test_what_is_typed_wrong(args: tuple[str, ...], words: str) -> None:
    status, text = _run(*args)
    assert status == 2
    assert words in text


def test_what_is_not_there(tmp_path: Path) -> None:
    for args, words in ((("--data", str(tmp_path / "none")), "no such folder"), (("--data", str(tmp_path)), "bench")):
        status, text = _run(*args)
        assert status == 1
        assert words in text
    write_bench(tmp_path, {"one": [UP]})
    assert "no judgments of judge 'x'" in _run("--data", str(tmp_path), "--judge", "x")[1]
    with pytest.raises(DataError):
        write_report(of_data(tmp_path, BENCH), ["x"], tmp_path / "r.html", Options())
    status, text = _run("--data", str(tmp_path), "--category", "nowhere", "--output", str(tmp_path / "r.html"))
    assert status == 1
    assert "choose one of the categories there are: hard" in text
    assert not (tmp_path / "r.html").exists()
