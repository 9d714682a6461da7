"""`flock-hpc curves` on folders as Arena-Hard writes them: tables, files, and what it says of odd input."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from automate.cli.curves import curves as command
from automate.cli.main import main
from automate.cli.views.curves_text import ASCII, UNICODE, lines, signs_for
from automate.results.battles import Battles
from automate.results.training.curves import curves
from tests.unit.curves_rig import OPTIONS, PATTERN, drawn, exact, grid, name
from tests.unit.support import real_data, write_lines

LABELS = {2: "A>>B", 1: "A>B", 0: "A=B", -1: "B>A", -2: "B>>A"}


def write_judgments(folder: Path, battles: Battles, bench: str = "bench", judge: str = "judge") -> Path:
    """Battles as judgment files; the model is B in its first game and A in its second."""
    for at, model in enumerate(battles.models):
        write_lines(folder / bench / "model_judgment" / judge / f"{model}.jsonl", (
            {"uid": battles.questions[battles.question[row]], "category": "hard_prompt", "judge": judge,
             "model": model, "baseline": "base",
             "games": [{"score": LABELS[-int(battles.first[row])]}, {"score": LABELS[int(battles.second[row])]}]}
            for row in np.flatnonzero(battles.model == at)))
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    battles = grid([8, 64], ["1e5", "5e6"], [100, 200, "final"])
    extra = drawn({"llama-instruct": 0.5})
    return write_judgments(write_judgments(tmp_path / "data", battles), extra)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(one) for one in arguments], env={"COLUMNS": "120"})


def test_tables_and_plots(data: Path, tmp_path: Path) -> None:
    found = run("--data", data, "--rounds", 100, "--output", tmp_path / "out")
    assert found.exit_code == 0, found.output
    for words in ("in percent against base", "tulu3-8b-rank64-alpha1e5", "Best checkpoints", "Spearman",
                  "1 name not a checkpoint's by the pattern: llama-instruct", "step 100", "final"):
        assert words in found.stdout
    plots = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert {"curves.svg", "curves.png", "curves-rankings.svg", "curves-mean-lr.png"} <= set(plots)
    for plot in plots:
        assert plot in found.stderr


def test_what_is_read_is_what_was_drawn(data: Path, tmp_path: Path) -> None:
    found = run("--data", data, "--rounds", 100, "--json", "--output", tmp_path / "out", "--format", "svg")
    document = json.loads(found.stdout)
    straight = curves(grid([8, 64], ["1e5", "5e6"], [100, 200, "final"]), OPTIONS, PATTERN)
    scores = {point["model"]: point["score"] for one in document["runs"] for point in one["points"]}
    assert scores == pytest.approx({point.checkpoint.model: point.score for point in straight.points})
    assert document["unmatched"] == ["llama-instruct"]
    assert document["stop"]["threshold"] == 0.9
    assert not list((tmp_path / "out").glob("*.png"))


def test_csv_holds_everything(data: Path, tmp_path: Path) -> None:
    found = run("--data", data, "--rounds", 100, "--csv", tmp_path / "all.csv", "--no-plots")
    assert found.exit_code == 0
    assert not (tmp_path / "results").exists()
    rows = list(csv.DictReader((tmp_path / "all.csv").open()))
    counts = {kind: sum(row["table"] == kind for row in rows) for kind in {row["table"] for row in rows}}
    assert counts == {"score": 12, "mean": 12, "best": 9, "spearman": 2, "unmatched": 1}
    assert {row["group_rank"] for row in rows if row["table"] == "score"} == {"8", "64"}
    on_screen = run("--data", data, "--rounds", 100, "--csv", "-", "--no-plots")
    assert list(csv.DictReader(io.StringIO(on_screen.stdout))) == rows


def test_rows_by_group(data: Path) -> None:
    found = run("--data", data, "--rounds", 100, "--by", "rank", "--no-plots")
    assert "Means over the runs" in found.stdout
    assert [line.split()[0] for line in found.stdout.splitlines()[2:5]] == ["rank", "8", "64"]
    wrong = run("--data", data, "--by", "epoch", "--no-plots")
    assert wrong.exit_code == 2
    assert "it has run, rank, lr" in wrong.output


def test_another_pattern(data: Path) -> None:
    found = run("--data", data, "--rounds", 100, "--no-plots", "--json", "--pattern", r"(?P<run>llama)-(?P<step>.*1)")
    assert found.exit_code == 1
    assert len(json.loads(found.stdout)["unmatched"]) == 13
    text = run("--data", data, "--rounds", 100, "--no-plots", "--pattern", r"(?P<run>llama)-(?P<step>.*1)")
    assert "13 names not a checkpoint's" in text.stdout
    assert "give --pattern" in text.stdout


@pytest.mark.parametrize(("arguments", "says"), [
    (["--pattern", "("], "not a regular expression"), (["--pattern", "x"], "needs the groups"),
    (["--category", "nope"], "category nope"), (["--judge", "nobody"], "nobody"),
    (["--format", "pdf"], "known are svg and png"), (["--format", ","], "known are svg and png"),
    (["--json", "--csv"], "choose one"), (["--workspace", "."], "don't go together")])
def test_what_can_not_be_done_is_said_without_a_traceback(data: Path, arguments: list[str], says: str,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["curves", "--data", str(data), "--no-plots", *arguments])
    assert status in (1, 2)
    assert says in capsys.readouterr().err


def test_plots_that_can_not_be_written(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("a file")
    assert main(["curves", "--data", str(data), "--rounds", "10", "--output", str(tmp_path / "out" / "deep")]) == 1
    assert "can't be written: there is no folder" in capsys.readouterr().err


def test_the_workspaces_settings_are_used(tmp_path: Path) -> None:
    battles = exact({"m@8": 20, "m@16": 30, "m@end-final": 40, "other": 10})
    write_judgments(tmp_path / "arena" / "data", battles, "arena-hard-v2.0", "judge")
    (tmp_path / "flock-hpc.yaml").write_text(
        "arena_hard: arena\nbench: arena-hard-v2.0\nbaseline: base\njudge:\n  name: judge\nresults:\n  rounds: 50\n"
        "curves:\n  pattern: '(?P<run>m)@(?P<step>.*)'\n  final_step: 32\n")
    found = run("--workspace", tmp_path, "--json")
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert [point["step"] for point in document["runs"][0]["points"]] == [8, 16, 32]
    assert document["options"]["rounds"] == 50
    assert (tmp_path / "results" / "curves.svg").is_file()


# --- the tables ---------------------------------------------------------------------------------
@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 400])
@pytest.mark.parametrize("by", ["run", "rank", "lr"])
def test_no_line_is_wider_than_the_terminal(width: int, by: str) -> None:
    found = curves(grid([8, 64, 128], ["1e5-001", "5e6-001"], [*range(1000, 30_000, 1000), "final"]), OPTIONS, PATTERN)
    shown = lines(found, by, width, UNICODE)
    assert max(map(cell_len, shown)) <= width
    assert ("steps are shown" in " ".join(" ".join(shown).split())) == (width < 400)


def test_hostile_names_do_not_reach_the_terminal() -> None:
    chances = {f"\x1b[2J[bold]{run}\u202e-{step}": 0.4 for run in "ab" for step in (1, 2)} | {"\x07": 0.1}
    found = curves(drawn(chances, 40), OPTIONS, r"(?P<run>.+)-(?P<step>\d+)")
    text = "".join(lines(found, "run", 100, UNICODE))
    assert text.isprintable()
    assert "[bold]a" in text


def test_a_terminal_without_the_signs_gets_others() -> None:
    assert signs_for("utf-8") is UNICODE
    assert signs_for("ascii") is ASCII
    found = curves(grid([8, 64], ["1e5"], [1, 2, "final"]), OPTIONS, PATTERN)
    assert "".join(lines(found, "run", 100, ASCII)).isascii()


def test_means_of_fewer_runs_say_so() -> None:
    wins = {name("m", 1, 8, "a"): 10, name("m", 1, 8, "b"): 30, name("m", 2, 8, "b"): 50}
    found = curves(exact(wins), OPTIONS, PATTERN)
    text = "\n".join(lines(found, "rank", 100, UNICODE))
    assert " (1)" in text
    assert "the mean of n runs only" in text


def test_a_spreadsheet_takes_no_name_for_a_formula(tmp_path: Path) -> None:
    from automate.cli.views.curves_files import as_csv

    found = curves(drawn({"=cmd()-1": 0.3, "+x": 0.2}, 30), OPTIONS, r"(?P<run>.+)-(?P<step>\d)")
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert [row["model"] for row in rows if row["table"] in ("score", "unmatched")] == ["'=cmd()-1", "'+x"]


# --- real files ---------------------------------------------------------------------------------
def test_real_judgments(tmp_path: Path) -> None:
    folder = real_data("leaderboard-dev", "data")
    found = run("--data", folder, "--rounds", 100, "--json", "--output", tmp_path, "--pattern",
                r"(?P<run>gemini|claude|gpt)-(?P<step>\d).*")
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert sum(len(one["points"]) for one in document["runs"]) + len(document["unmatched"]) == 24
    assert [one["run"] for one in document["runs"]] == ["claude", "gemini", "gpt"]
    assert any("3 models are step 4 of run gpt" in note for note in document["notes"])
