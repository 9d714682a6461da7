"""The command `leaderboard`: what it prints, in which form, and that no bad input ends in a traceback."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from automate.cli.main import main
from automate.results.reading.folder import BenchFolder
from tests.unit.reading_support import BENCH, JUDGE, Row, answers, bench, game, questions, row, rows
from tests.unit.support import real_data, write_lines

WIN, LOSS, TIE = ("B>A", "A>B"), ("A>B", "B>A"), ("A=B", "A=B")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command as a user does; (status, output, errors)."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*words: object) -> tuple[int, str, str]:
        status = main(["leaderboard", *map(str, words)])
        found = capsys.readouterr()
        assert "Traceback" not in found.err
        return status, found.out, found.err

    return call


@pytest.fixture
def folder(tmp_path: Path) -> BenchFolder:
    """Three models of 60 questions: good wins most, bad loses most, even is level."""
    labels = {"good": [WIN, WIN, WIN, LOSS], "even": [WIN, LOSS, TIE], "bad": [LOSS, LOSS, LOSS, WIN]}
    found = bench(tmp_path, {model: rows(60, each) for model, each in labels.items()})
    questions(found, [f"q{number}" for number in range(60)])
    return found


def with_answers(folder: BenchFolder, *models: str, count: int = 60) -> None:
    """Answers whose style varies."""
    for place, model in enumerate(("base", *models)):
        for_each = {f"q{i}": 50 + (i * (place + 3)) % 37 + 10 * place for i in range(count)}
        answers(folder, model, for_each, headers=place, lists=2 * place, bold=place % 2)


def ranked(text: str) -> list[str]:
    """The models of a table in its order."""
    lines = text.split("\n")
    start = next(number for number, line in enumerate(lines) if "rank" in line and "model" in line)
    names = []
    for line in lines[start + 1:]:
        words = line.replace("┌", "").replace("│", "").replace("└", "").split()
        if not words:
            break
        names.append(words[1])
    return names


# --- the table --------------------------------------------------------------------------------------

def test_a_table_for_people(run: Run, folder: BenchFolder) -> None:
    status, out, _ = run("--data", folder.path.parent)
    assert status == 0
    assert out.startswith("3 models against base, judged by judge on 60 questions\n")
    assert ranked(out) == ["good", "base", "even", "bad"]
    assert "◂ baseline" in out
    assert "\x1b" not in out
    assert "Smallest difference between neighbours that 60 questions can show" in out
    assert "Judge judge: the two orders agree on 100.0% of questions" in out


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_it_fits(run: Run, folder: BenchFolder, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    long = "a-model-with-quite-a-long-name-that-says-everything-step48000"
    write_lines(folder.judgments / JUDGE / f"{long}.jsonl", rows(60, [WIN, LOSS]))
    _, out, _ = run("--data", folder.path.parent)
    assert max(map(len, out.split("\n"))) <= width
    assert "step48000" in out


def test_names_are_shown_and_not_obeyed(run: Run, tmp_path: Path) -> None:
    name = "evil\x1b[31m[bold]|x"
    found = bench(tmp_path, {name: rows(40), "=cmd": rows(40)})
    _, out, _ = run("--data", found.path.parent)
    assert "evil?[31m[bold]|x" in out
    assert "\x1b" not in out
    _, out, _ = run("--data", found.path.parent, "--csv")
    assert {line["model"] for line in csv.DictReader(io.StringIO(out))} == {"'=cmd", "evil?[31m[bold]|x", "base"}
    _, out, _ = run("--data", found.path.parent, "--markdown")
    assert "| evil?\\[31m\\[bold\\]\\|x |" in out


def test_categories_apart_and_split(run: Run, tmp_path: Path) -> None:
    """Without a choice all together and split beside it; with two, a table for each."""
    mixed = {model: [*rows(40, [win], category="sums"), *(row(f"p{i}", *lose, category="poems") for i in range(40))]
             for model, win, lose in (("one", WIN, LOSS), ("two", LOSS, WIN))}
    found = bench(tmp_path, mixed)
    _, out, _ = run("--data", found.path.parent)
    assert "By category" in out
    assert "By category, against base: score and interval" in out
    assert "one    100.0 (91.2–100.0)" in out
    _, out, _ = run("--data", found.path.parent, "--category", "poems", "--category", "sums")
    assert out.index("category poems: 2 models") < out.index("category sums: 2 models")
    assert ranked(out) == ["two", "base", "one"]
    status, _, err = run("--data", found.path.parent, "--category", "songs")
    assert status == 1
    assert "no judgment is of category 'songs'\n  -> categories that are there: sums, poems" in err


def test_two_judges_pooled_and_apart(run: Run, folder: BenchFolder, tmp_path: Path) -> None:
    bench(tmp_path, {"good": rows(60, [LOSS])}, judge="strict")
    status, _, err = run("--data", folder.path.parent)
    assert status == 1
    assert "judgments of 2 judges: judge, strict" in err
    _, out, _ = run("--data", folder.path.parent, "--judge", "judge", "--judge", "strict")
    assert "judged by judge and strict" in out
    _, out, _ = run("--data", folder.path.parent, "--judge", "judge", "--judge", "strict", "--judges-apart")
    assert "1 model against base, judged by strict on 60 questions" in out
    assert "Judges judge and strict name the same winner in 25.0% of 120 games" in out


def test_a_comparison(run: Run, folder: BenchFolder) -> None:
    _, out, _ = run("--data", folder.path.parent, "--compare", "good", "bad")
    assert "good minus bad: +50.0 points" in out
    assert "good is better." in out
    _, out, _ = run("--data", folder.path.parent, "--compare", "even", "base")
    assert "They can't be told apart." in out
    _, out, _ = run("--data", folder.path.parent, "--compare", "good", "bad", "--csv")
    (line,) = csv.DictReader(io.StringIO(out))
    assert (line["first"], line["second"], line["questions"]) == ("good", "bad", "60")
    status, _, err = run("--data", folder.path.parent, "--compare", "good", "none")
    assert status == 1
    assert "no judgments of none" in err


def test_a_choice_of_models(run: Run, folder: BenchFolder, tmp_path: Path) -> None:
    _, out, _ = run("--data", folder.path.parent, "--models", "good", "bad", "none")
    assert ranked(out) == ["good", "base", "bad"]
    assert "no judgments of none" in out
    (tmp_path / "models.txt").write_text("bad  # the worst\n../x\n")
    _, out, err = run("--data", folder.path.parent, "--models-file", tmp_path / "models.txt")
    assert ranked(out) == ["base", "bad"]
    assert "models.txt:2" in err


# --- for other programs -----------------------------------------------------------------------------

def test_json(run: Run, folder: BenchFolder) -> None:
    _, out, _ = run("--data", folder.path.parent, "--json", "--seed", "7", "--confidence", "90", "--rounds", "200",
                    "--strong-weight", "1")
    found = json.loads(out)
    (table,) = found["tables"]
    assert [score["model"] for score in table["scores"]] == ["good", "base", "even", "bad"]
    assert {key: table["options"][key] for key in ("seed", "confidence", "rounds", "strong_weight")} == {
        "seed": 7, "confidence": 90.0, "rounds": 200, "strong_weight": 1.0}
    assert found["quality"][0]["model"] is None
    assert len(found["files"]) == 3


def test_csv_into_a_file_beside_the_table(run: Run, folder: BenchFolder, tmp_path: Path) -> None:
    _, out, err = run("--data", folder.path.parent, "--csv", tmp_path / "board.csv")
    assert ranked(out) == ["good", "base", "even", "bad"]
    assert "written: " in err
    lines = list(csv.DictReader((tmp_path / "board.csv").open()))
    assert [line["model"] for line in lines] == ["good", "base", "even", "bad"]
    assert (lines[0]["games"], lines[0]["nulls"], lines[0]["score"]) == ("120", "0", "75.0000")
    status, _, err = run("--data", folder.path.parent, "--csv", tmp_path / "board.csv" / "below")
    assert status == 1
    assert "can't write it" in err


def test_markdown(run: Run, folder: BenchFolder) -> None:
    _, out, _ = run("--data", folder.path.parent, "--markdown")
    lines = [line for line in out.split("\n") if line.startswith("|")]
    assert {line.count("|") for line in lines} == {8}
    assert lines[3].startswith("| 2–3 | base (baseline) | 50.0 |")


@pytest.mark.parametrize("words", [
    ("--json", "--markdown"), ("--compatible", "--json"), ("--compatible", "--confidence", "90"),
    ("--battles", "x", "--judge", "y"), ("--battles", "x", "--style-control"), ("--data", "x", "--workspace", "y"),
])
def test_options_that_do_not_go_together(run: Run, words: tuple[str, ...]) -> None:
    status, _, err = run(*words)
    assert status == 2
    assert "Error: " in err


def test_a_workspace_and_its_settings(run: Run, folder: BenchFolder, tmp_path: Path) -> None:
    (tmp_path / "flock-hpc.yaml").write_text(
        f"arena_hard: .\nbench: {BENCH}\njudge:\n  name: {JUDGE}\n"
        "results:\n  rounds: 50\n  seed: 3\n")
    _, out, err = run("--workspace", tmp_path, "--json")
    assert err == ""
    options = json.loads(out)["tables"][0]["options"]
    assert (options["rounds"], options["seed"]) == (50, 3)
    _, out, _ = run("--workspace", tmp_path, "--json", "--seed", "4")
    assert json.loads(out)["tables"][0]["options"]["seed"] == 4
    status, _, err = run("--workspace", tmp_path, "--judge", "other")
    assert status == 1
    assert "judges that are there: judge" in err


# --- bad input --------------------------------------------------------------------------------------

def test_no_questions_file(run: Run, folder: BenchFolder) -> None:
    folder.questions.unlink()
    status, out, _ = run("--data", folder.path.parent)
    assert status == 0
    assert "question.jsonl: no questions file" in out
    assert ranked(out)[0] == "good"


def test_a_question_set_of_another_version(run: Run, folder: BenchFolder) -> None:
    questions(folder, [f"q{number}" for number in range(50)])
    _, out, _ = run("--data", folder.path.parent)
    assert "on 50 questions" in out
    assert "question.jsonl: a question set of another version: 30 rows of questions that are not in it" in out


def test_a_model_without_games(run: Run, folder: BenchFolder) -> None:
    write_lines(folder.judgments / JUDGE / "none.jsonl", [])
    status, out, _ = run("--data", folder.path.parent)
    assert status == 0
    assert "none" not in ranked(out)
    assert "none.jsonl: no games of 'none'; it has no score" in out


def test_a_model_whose_games_are_all_null(run: Run, folder: BenchFolder) -> None:
    write_lines(folder.judgments / JUDGE / "nulls.jsonl", [row(f"q{i}", None, None, model="nulls") for i in range(9)])
    status, out, _ = run("--data", folder.path.parent)
    assert status == 0
    assert ranked(out) == ["good", "base", "even", "bad"]
    assert "nulls.jsonl: none of the 9 rows of 'nulls' has both verdicts (18 null)" in out


def test_all_games_of_all_models_null(run: Run, tmp_path: Path) -> None:
    found = bench(tmp_path, {model: [row("q1", None, game(None)), row("q2", None, None)] for model in ("m1", "m2")})
    status, out, _ = run("--data", found.path.parent)
    assert status == 1
    assert "no question has verdicts in both games (4 rows were read)" in out
    assert "1 no label in the reply, 3 null" in out or "3 null, 1 no label in the reply" in out
    for words in (["--json"], ["--csv"], ["--markdown"], ["--compare", "m1", "m2"], ["--style-control"]):
        assert run("--data", found.path.parent, *words)[0] == 1
    assert run("--data", found.path.parent, "--compatible")[0] == 1


def test_files_without_a_row(run: Run, tmp_path: Path) -> None:
    found = bench(tmp_path, {"m1": [], "m2": [b"junk\n"]})
    status, out, _ = run("--data", found.path.parent)
    assert status == 1
    assert "no judgments: there is no row" in out
    assert "m2.jsonl:1: left out: not JSON" in out


def test_one_model_only(run: Run, folder: BenchFolder) -> None:
    for name in ("even", "bad"):
        (folder.judgments / JUDGE / f"{name}.jsonl").unlink()
    status, out, _ = run("--data", folder.path.parent)
    assert (status, ranked(out)) == (0, ["good", "base"])
    assert out.startswith("1 model against base")
    with_answers(folder, "good")
    status, out, _ = run("--data", folder.path.parent, "--style-control")
    assert (status, ranked(out)[0]) == (0, "good")


def test_one_question_only(run: Run, tmp_path: Path) -> None:
    status, out, _ = run("--data", bench(tmp_path, {"m1": rows(1), "m2": rows(1, [LOSS])}).path.parent)
    assert (status, ranked(out)) == (0, ["m1", "base", "m2"])


def test_one_name_in_two_files(run: Run, folder: BenchFolder) -> None:
    write_lines(folder.judgments / JUDGE / "copy.jsonl", rows(60, [WIN], model="good"))
    _, out, _ = run("--data", folder.path.parent)
    assert ranked(out) == ["copy", "good", "base", "even", "bad"]
    assert "copy.jsonl: its rows name the model 'good'" in out


def test_the_baseline_is_missing_from_the_answers(run: Run, folder: BenchFolder) -> None:
    """No style control then, and it is said; the plain table stands."""
    with_answers(folder, "good", "even", "bad")
    (folder.answers / "base.jsonl").unlink()
    status, out, _ = run("--data", folder.path.parent, "--style-control")
    assert (status, ranked(out)) == (0, ["good", "base", "even", "bad"])
    assert "! without style control" in out
    assert "base.jsonl: no answers of 'base'" in out.replace("\n  ", " ")


def test_features_without_variance(run: Run, folder: BenchFolder) -> None:
    for model in ("base", "good", "even", "bad"):
        answers(folder, model, {f"q{i}": 100 for i in range(60)})
    status, out, _ = run("--data", folder.path.parent, "--style-control")
    assert (status, ranked(out)) == (0, ["good", "base", "even", "bad"])
    assert "the same" in out or "without style control" in out


def test_answers_of_no_tokens(run: Run, folder: BenchFolder) -> None:
    with_answers(folder, "good", "even", "bad")
    answers(folder, "bad", {f"q{i}": 0 for i in range(60)})
    answers(folder, "base", {f"q{i}": 0 if i < 30 else 50 + i for i in range(60)})
    status, out, _ = run("--data", folder.path.parent, "--style-control")
    assert status == 0
    assert "60 answers of 'bad' with no tokens" in out
    assert "nan" not in out


def test_categories_that_only_some_models_have(run: Run, tmp_path: Path) -> None:
    found = bench(tmp_path, {"one": [*rows(40), *(row(f"p{i}", category="poems") for i in range(40))],
                             "two": rows(40, [LOSS])})
    status, out, _ = run("--data", found.path.parent)
    assert status == 0
    assert "category 'poems': 1 of 2 models have no games in it (two)" in out
    status, out, _ = run("--data", found.path.parent, "--category", "poems")
    assert (status, ranked(out)) == (0, ["one", "base"])


@pytest.mark.parametrize("words", [(), ("--style-control",), ("--compatible",), ("--compatible", "--style-control"),
                                   ("--compatible", "--style-control", "length"), ("--style-control", "markdown")])
def test_rows_at_which_the_original_stops(run: Run, folder: BenchFolder, words: tuple[str, ...]) -> None:
    """An unknown label and a one-game row: left out, named with file and line or count."""
    odd: list[Row | bytes] = [*rows(58, [LOSS], model="bad"), row("q58", "A", "A>B", model="bad"),
                              row("q59", games=[game("A>B")], model="bad"), b'{"uid": "q5']
    write_lines(folder.judgments / JUDGE / "bad.jsonl", odd)
    with_answers(folder, "good", "even", "bad")
    status, out, err = run("--data", folder.path.parent, *words)
    assert status == 0
    assert "bad.jsonl" in out + err
    assert "'A'" in out + err
    assert "bad" in out


def test_two_categories_in_the_compatible_mode(run: Run, tmp_path: Path) -> None:
    found = bench(tmp_path, {"one": [*rows(10, category="hard_prompt"),
                                     *(row(f"p{i}", category="poems") for i in range(10))]})
    _, out, _ = run("--data", found.path.parent, "--compatible")
    assert "##### Category: hard_prompt #####" in out
    assert "poems" not in out
    _, out, _ = run("--data", found.path.parent, "--compatible", "--category", "poems", "--category", "hard_prompt")
    assert out.index("Category: poems") < out.index("Category: hard_prompt")


# --- real files -------------------------------------------------------------------------------------

def test_the_originals_own_text(run: Run) -> None:
    data = real_data("leaderboard-dev")
    status, out, err = run("--data", data / "data", "--bench", "ko", "--judge", "ens", "--compatible", "--seed", "0")
    assert (status, err) == (0, "")
    assert out == (data / "expected" / "plain_seed0.txt").read_text()


def test_real_scores_and_the_published_means(run: Run) -> None:
    data = real_data("leaderboard-dev")
    _, out, _ = run("--data", data, "--json")
    (table,) = json.loads(out)["tables"]
    found = {score["model"]: score["score"] for score in table["scores"]}
    wanted = {line["model"]: float(line["score_percent"])
              for line in csv.DictReader((data / "expected" / "weighted_mean.csv").open())}
    assert found == pytest.approx({**wanted, "claude-3.7-sonnet": 50.0}, abs=1e-5)


@pytest.mark.parametrize("date", ["20240806", "20240813"])
def test_published_tables_of_battles(run: Run, date: str) -> None:
    """All columns but the date and the answers' length."""
    _, out, _ = run("--battles", real_data("v01-battles", f"dw_{date}_battles.jsonl"), "--compatible")
    found = list(csv.DictReader(io.StringIO(out)))
    path = real_data("v01-battles", f"dw_{date}_leaderboard.csv")
    wanted = [{name: line[name] for name in found[0]} for line in csv.DictReader(path.open())]
    assert found == wanted


# --- what can't be ranked, scored or told apart -----------------------------------------------------

def test_there_are_no_ranks_across_baselines(run: Run, tmp_path: Path) -> None:
    """Neither where a category has games against two, nor where a model lacks the games against one of two."""
    other = [row(f"q{number}", *WIN, baseline="second") for number in range(40)]
    found = bench(tmp_path, {"one": rows(40), "two": other})
    status, out, _ = run("--data", found.path.parent)
    assert status == 0
    assert "2 baselines (base, second): these scores can't be compared, so there are no ranks" in " ".join(out.split())
    assert [line.split()[0] for line in out.split("\n") if line.startswith(" ") and "." in line] == ["two", "one"]
    assert "bracket" not in out and "Smallest difference" not in out
    _, out, _ = run("--data", found.path.parent, "--csv")
    assert [(line["rank_low"], line["rank_high"]) for line in csv.DictReader(io.StringIO(out))] == [("", "")] * 2
    _, out, _ = run("--data", found.path.parent, "--json")
    assert [score["rank_low"] for score in json.loads(out)["tables"][0]["scores"]] == [None, None]
    own = [row(f"p{number}", *WIN, category="poems", baseline="second") for number in range(40)]
    found = bench(tmp_path / "apart", {"one": [*rows(40), *own], "two": rows(40)})
    _, out, _ = run("--data", found.path.parent)
    assert "not judged against all 2 baselines: two; scores against different baselines" in " ".join(out.split())
    assert "By category, each against its own baseline: score and interval" in out
    found = bench(tmp_path / "both", {"one": [*rows(40), *own], "two": [*rows(40), *own]})
    _, out, _ = run("--data", found.path.parent)
    assert "no ranks" not in out and "1–2  " in out
    assert ranked(out) == ["one", "two"]


def test_a_comparison_has_no_ranks(run: Run, folder: BenchFolder) -> None:
    _, out, _ = run("--data", folder.path.parent, "--compare", "good", "bad", "--json")
    scores = json.loads(out)["tables"][0]["scores"]
    assert {score["rank_low"] for score in scores} == {score["rank_high"] for score in scores} == {None}


@pytest.mark.parametrize("files", [{"one": []}, {"one": [row("q1", None, "A>B")]}, {}])
def test_compatible_without_a_game_is_an_error(run: Run, tmp_path: Path, files: dict[str, list[Row]]) -> None:
    found = bench(tmp_path, files)
    (found.judgments / JUDGE).mkdir(parents=True, exist_ok=True)
    status, out, err = run("--data", found.path.parent, "--compatible")
    assert (status, out) == (1, "")
    rows_there = sum(map(len, files.values()))
    assert f"{JUDGE}: no game to score: {len(files)} judgment files, {rows_there} rows of them used" in err


def test_the_games_shown_are_those_that_count(run: Run, tmp_path: Path) -> None:
    found = bench(tmp_path, {"one": [*rows(18), *(row(f"h{number}", "B>A", None) for number in range(21))]})
    _, out, _ = run("--data", found.path.parent, "--csv")
    one = next(line for line in csv.DictReader(io.StringIO(out)) if line["model"] == "one")
    assert (one["games"], one["questions"]) == ("36", "18")


def test_long_names_are_shortened_in_the_table_alone(run: Run, tmp_path: Path) -> None:
    """And stay apart, also where they differ in the middle only."""
    names = ["a" * 90 + letter + "b" * 90 for letter in "xyz"]
    found = bench(tmp_path, {name: rows(30, [WIN]) for name in names})
    _, out, _ = run("--data", found.path.parent)
    lines = [line for line in out.split("\n") if "aaa" in line and "…" in line]
    assert len(lines) == 3 and max(map(len, lines)) < 150
    assert {letter for letter in "xyz" for line in lines if f"…{letter}…" in line} == set("xyz")
    assert all(name in run("--data", found.path.parent, how)[1] for how in ("--csv", "--json") for name in names)
