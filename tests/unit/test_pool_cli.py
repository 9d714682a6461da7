"""The pool commands as they are typed: what they print, what they change, and what they say to what can't be."""

from __future__ import annotations

import json
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from automate.cli.main import main
from automate.cli.pool import POOL
from automate.cli.pool.options import ids_last
from tests.unit.pool_support import ROWS

Done = tuple[int, str, str]
Run = Callable[..., Done]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a space in its name, in which commands run."""
    root = tmp_path / "a workspace"
    root.mkdir()
    for name in ("FLOCK_HPC_WORKSPACE", "FLOCK_HPC_POOL_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def run(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `flock-hpc pool ...`: its exit status, output and errors."""
    def call(*words: object) -> Done:
        capsys.readouterr()
        status = main(["pool", *map(str, words)])
        found = capsys.readouterr()
        return status, found.out, found.err
    return call


@pytest.fixture
def questions(workspace: Path) -> Path:
    file = workspace / "rows.jsonl"
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS), encoding="utf-8")
    return file


def ok(done: Done) -> str:
    status, out, err = done
    assert status == 0, err
    return out


def wrong(done: Done, *words: str) -> None:
    """An error without a traceback that holds these words, and nothing on standard output."""
    status, out, err = done
    assert (status, out) == (1, ""), (status, out, err)
    assert err.startswith("Error: ")
    assert "Traceback" not in err
    for word in words:
        assert word in err, err


@pytest.fixture
def pool(run: Run, questions: Path) -> str:
    """A pool of 1000 on the data set siqa, by the key `default`, which has 4000 left."""
    ok(run("keygen"))
    ok(run("mint", "me", 5000))
    ok(run("dataset", "create", "siqa", "--from", questions))
    return ok(run("create", "--dataset", "siqa", "--fund", 1000, "--days", 30)).strip()


# Keys and money


def test_every_command_has_help(run: Run) -> None:
    for name in POOL:
        assert "Usage: flock-hpc pool " + name in ok(run(name, "--help"))
    for words in ("dataset create", "dataset info", "dataset models", "dataset list", "model add", "model list"):
        assert f"Usage: flock-hpc pool {words}" in ok(run(*words.split(), "--help"))


def test_keygen_prints_the_address_and_never_the_key(run: Run, workspace: Path) -> None:
    _, out, err = run("keygen")
    file = workspace / ".flock-hpc" / "pools" / "keys" / "default.pem"
    secret = "".join(file.read_text().splitlines()[1:-1])
    assert len(out.strip()) == 43
    assert str(file) in err
    assert secret[-20:] not in out + err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (workspace / "flock-hpc.yaml").is_file()
    before = file.read_bytes()
    wrong(run("keygen"), str(file), "never written over")
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["../x", "a/b", "", "genesis", "me", "-x"])
def test_a_name_that_no_key_can_have(run: Run, workspace: Path, name: str) -> None:
    wrong(run("keygen", f"--name={name}"), "-> ")
    assert not list(workspace.rglob("*.pem"))


def test_the_first_message_makes_the_database_and_says_so_once(run: Run, workspace: Path) -> None:
    ok(run("keygen"))
    _, _, err = run("mint", "me", 10)
    assert err.count("made ") == 2
    assert str(workspace / ".flock-hpc" / "pools" / "keys" / "genesis.pem") in err
    assert run("mint", "me", 10)[2] == ""


def test_looking_makes_no_database(run: Run, workspace: Path) -> None:
    ok(run("keygen"))
    for words in (("list",), ("balance",), ("model", "list"), ("leaderboard", "siqa"), ("processes",)):
        wrong(run(*words), "-> ")
    assert not (workspace / ".flock-hpc" / "pools" / "state.sqlite").exists()


def test_mint_takes_me_a_keys_name_a_data_sets_name_and_an_address(run: Run, questions: Path) -> None:
    mine, other = ok(run("keygen")).strip(), ok(run("keygen", "--name", "other")).strip()
    dataset = ok(run("dataset", "create", "siqa", "--from", questions)).splitlines()[0]
    for given, address in (("me", mine), ("other", other), ("siqa", dataset), ("A" * 43, "A" * 43)):
        assert f"minted 1,000 for {address}; balance 1,000" in ok(run("mint", given, 1000))
    assert json.loads(ok(run("balance", "other", "--json")))["balance"] == "1000"
    assert json.loads(ok(run("balance", "--key", "other", "--json")))["account"] == other


@pytest.mark.parametrize("quantity", ["-5", "0", "1.5", "ten", "", "9" * 30, "1e3", "٣"])
def test_a_quantity_that_is_none(run: Run, quantity: str) -> None:
    ok(run("keygen"))
    ok(run("mint", "me", 1))
    wrong(run("mint", "me", quantity), "Quantity")
    assert json.loads(ok(run("balance", "--json")))["balance"] == "1"


def test_nobody_else_mints(run: Run) -> None:
    ok(run("keygen"))
    ok(run("mint", "me", 1))
    status, out, _ = run("send", "--action", "Mint", "--tag", "Quantity=5")
    assert status == 1
    assert "genesis" in json.loads(out)["error"]


# Data sets


def test_a_data_set_is_made_once_and_loads_what_is_new(run: Run, questions: Path) -> None:
    ok(run("keygen"))
    first = ok(run("dataset", "create", "siqa", "--from", questions)).splitlines()
    assert first[1] == "3 questions loaded, 0 were there"
    assert ok(run("dataset", "create", "siqa", "--from", questions)).splitlines() == [
        first[0], "0 questions loaded, 3 were there"]
    with questions.open("a") as file:
        file.write(json.dumps({**ROWS[0], "context": "it's new"}) + "\n")
    assert "1 questions loaded, 3 were there" in ok(run("dataset", "create", "siqa", "--from", questions))


def test_bad_rows_are_named_by_number_and_the_status_says_so(run: Run, questions: Path) -> None:
    ok(run("keygen"))
    with questions.open("a") as file:
        file.write('{"context": "x"}\n\x1b[31mno json\n')
    status, out, err = run("dataset", "create", "siqa", "--from", questions)
    assert status == 1
    assert "3 questions loaded, 0 were there, 2 can't be used:" in out
    assert "row 4: " in err
    assert "row 5: " in err
    assert "\x1b" not in err


def test_a_name_is_taken_by_another_kind(run: Run, pool: str, questions: Path) -> None:
    wrong(run("dataset", "create", "exact-match", "--name", "siqa", "--from", questions), "'siqa'", "another name")
    wrong(run("dataset", "create", "nonsense"), "nonsense", "siqa")


@pytest.mark.parametrize("words", [("--set", "x"), ("--set", "=x"), ("--columns", "{"), ("--columns", "[1]")])
def test_settings_that_are_none(run: Run, words: tuple[str, ...]) -> None:
    ok(run("keygen"))
    assert run("dataset", "create", "siqa", *words)[0] == 2


def test_settings_of_another_kind_are_refused_and_the_same_again_without_them_works(run: Run, questions: Path) -> None:
    ok(run("keygen"))
    ok(run("mint", "me", 1))
    wrong(run("dataset", "create", "siqa", "--from", questions, "--set", "Nonsense=1"), "Nonsense", "SystemPrompt")
    assert "not set up" in ok(run("dataset", "list"))
    assert "3 questions loaded" in ok(run("dataset", "create", "siqa", "--from", questions, "--title", "Mine"))
    assert json.loads(ok(run("dataset", "info", "siqa", "--json")))["settings"]["Title"] == "Mine"


def test_columns_of_a_csv_file(run: Run, workspace: Path) -> None:
    (workspace / "rows.csv").write_text("prompt,a,b,right\n\"It's, x?\",yes,no,B\n")
    ok(run("keygen"))
    columns = json.dumps({"question": "prompt", "options": ["a", "b"], "answer": "right"})
    assert "1 questions loaded" in ok(run("dataset", "create", "multiple-choice", "--from", "rows.csv", "--columns",
                                          columns))


def test_settings_are_kept_and_shown(run: Run, questions: Path) -> None:
    ok(run("keygen"))
    ok(run("dataset", "create", "siqa", "--name", "mine", "--from", questions, "--set", "SystemPrompt=Say [bold]A=B",
           "--set", "Method=loglikelihood"))
    found = json.loads(ok(run("dataset", "info", "mine", "--json")))
    assert found["settings"]["SystemPrompt"] == "Say [bold]A=B"
    assert "Say [bold]A=B" in ok(run("dataset", "info", "mine"))


# Pools and models


def test_a_pool_is_opened_listed_and_shown(run: Run, pool: str) -> None:
    assert len(pool) == 43
    assert pool[:10] in ok(run("list"))
    for given in (pool, pool[:6], "siqa"):
        assert pool in ok(run("show", given))
    assert [one["id"] for one in json.loads(ok(run("list", "--json")))] == [pool]
    assert json.loads(ok(run("balance", "--json")))["balance"] == "4000"


def test_a_pool_that_cannot_be_opened_gives_its_money_back(run: Run, pool: str) -> None:
    wrong(run("create", "--dataset", "siqa", "--fund", 100, "--allocation", "Nonsense"), "Nonsense", "Equal")
    wrong(run("create", "--dataset", "nowhere", "--fund", 100), "nowhere", "siqa")
    wrong(run("create", "--dataset", "siqa", "--fund", 4001), "4,000", "pool mint")
    wrong(run("create", "--dataset", "siqa", "--fund", "1.5"), "Quantity")
    assert json.loads(ok(run("balance", "--json")))["balance"] == "4000"
    assert len(json.loads(ok(run("list", "--json")))) == 1


def test_a_very_short_pool_is_over_at_once(run: Run, pool: str) -> None:
    short = ok(run("create", "--dataset", "siqa", "--fund", 10, "--days", "0.000000001")).strip()
    assert json.loads(ok(run("show", short, "--json")))["state"] == "over"


def test_a_model_joins_and_stands_on_the_leaderboard(run: Run, pool: str) -> None:
    process = ok(run("model", "add", "tiny", "--path", "org/tiny")).strip()
    assert pool in ok(run("join", pool[:8], "--model", "tiny"))
    assert "already" in ok(run("join", "siqa", "--model", process[:8]))
    assert "tiny" in ok(run("leaderboard", pool))
    (place,) = json.loads(ok(run("leaderboard", pool, "--json")))["places"]
    assert (place["model"], place["process"], place["rank"]) == ("tiny", process, 1)
    assert json.loads(ok(run("dataset", "models", "siqa", "--json")))[0]["pending"] == 3
    assert "tiny" in ok(run("dataset", "models", "siqa"))
    assert "tiny" in ok(run("model", "list"))


def test_a_model_can_be_a_folder_of_this_machine(run: Run, pool: str, workspace: Path) -> None:
    (workspace / "weights").mkdir()
    ok(run("model", "add", "mine", "--path", "weights"))
    assert json.loads(ok(run("model", "list", "--json")))[0]["data_tx"] == str(workspace / "weights")
    ok(run("join", pool, "--model", "mine"))


@pytest.mark.parametrize("given", ["../rel", "./rel", "/no/such/folder"])
def test_a_folder_that_is_not_there(run: Run, pool: str, workspace: Path, given: str) -> None:
    there = str((workspace / given).resolve())
    wrong(run("model", "add", "mine", "--path", given), there, "owner/name")
    assert json.loads(ok(run("model", "list", "--json"))) == []


def test_only_the_workspaces_owner_adds_a_model_for_another(run: Run, pool: str) -> None:
    other = ok(run("keygen", "--name", "other")).strip()
    data = json.dumps({"name": "m", "data_tx": "org/m", "owner": other})
    assert run("send", "--action", "Add-Model", "--data", data)[0] == 1
    assert json.loads(ok(run("model", "list", "--json"))) == []
    ok(run("send", "--action", "Add-Model", "--data", data, "--key", "genesis"))
    assert [one["owner"] for one in json.loads(ok(run("model", "list", "--json")))] == [other]


def test_somebody_elses_model_does_not_join(run: Run, pool: str) -> None:
    ok(run("keygen", "--name", "thief"))
    ok(run("model", "add", "tiny", "--path", "org/tiny"))
    wrong(run("join", pool, "--model", "tiny", "--key", "thief"), "tiny")
    assert json.loads(ok(run("show", pool, "--json")))["models"] == []


@pytest.mark.parametrize("words", [
    ("show", "nothing"), ("leaderboard", "no' OR '1'='1"), ("join", "siqa", "--model", "x"), ("audit", "\x1b[2J"),
    ("dataset", "info", "none"), ("dataset", "models", "none"), ("evaluate", "nothing")])
def test_what_is_not_there_is_said(run: Run, pool: str, words: tuple[str, ...]) -> None:
    done = run(*words)
    wrong(done, "-> ")
    assert "\x1b" not in done[2]


def test_without_a_key_the_way_to_one_is_named(run: Run, workspace: Path) -> None:
    (workspace / "flock-hpc.yaml").write_text("pools: {}\n")
    wrong(run("model", "add", "x", "--path", "org/x"), "keygen")


# The leaderboard for others


def renamed(workspace: Path, name: str) -> None:
    """The model has a name that no message could give it."""
    with closing(sqlite3.connect(workspace / ".flock-hpc" / "pools" / "state.sqlite")) as db:
        db.execute("UPDATE models SET name = ?", (name,))
        db.commit()


def test_a_leaderboard_as_csv_is_safe_for_a_spreadsheet(run: Run, pool: str, workspace: Path) -> None:
    ok(run("model", "add", "tiny", "--path", "org/tiny"))
    ok(run("join", pool, "--model", "tiny"))
    renamed(workspace, "=cmd()")
    lines = ok(run("leaderboard", pool, "--csv")).splitlines()
    assert lines[0].startswith("rank,model,process,participant,score,progress,value,low,high")
    assert lines[1].startswith("1,'=cmd(),")
    file = workspace / "board.csv"
    ok(run("leaderboard", pool, "--csv", "--out", file))
    assert file.read_text().splitlines() == lines


def test_a_leaderboard_as_a_page(run: Run, pool: str, workspace: Path) -> None:
    ok(run("model", "add", "tiny", "--path", "org/tiny"))
    ok(run("join", pool, "--model", "tiny"))
    renamed(workspace, "<script>x")
    ok(run("leaderboard", pool, "--html", workspace / "board.html"))
    page = (workspace / "board.html").read_text()
    assert "&lt;script&gt;x" in page
    assert "<script>x" not in page


@pytest.mark.parametrize("words", [("--json", "--csv"), ("--csv", "--html", "x"), ("--out", "x")])
def test_one_form_at_a_time(run: Run, pool: str, words: tuple[str, ...]) -> None:
    assert run("leaderboard", pool, *words)[0] == 2


@pytest.mark.parametrize("words", [("--html", "--help"), ("--csv", "--out", "--json"), ("--html", "-x")])
def test_a_file_that_looks_like_an_option(run: Run, pool: str, words: tuple[str, ...], tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert run("leaderboard", pool, *words)[0] == 2
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_file_that_cannot_be_written(run: Run, pool: str, workspace: Path) -> None:
    wrong(run("leaderboard", pool, "--json", "--out", workspace / "rows.jsonl" / "x.json"), "rows.jsonl", "-> ")


# Any message


def test_the_specs_messages_go_to_whom_they_belong(run: Run, pool: str) -> None:
    ok(run("model", "add", "tiny", "--path", "org/tiny"))
    join = json.dumps({"dataset": pool, "model": "tiny"})
    sent = json.loads(ok(run("send", "--action", "Join-Pool", "--data", join)))
    assert sent["state"] == "handled"
    assert "Join-Pool-Response" in [one["Action"] for one in sent["replies"]]
    board = json.loads(ok(run("send", "--action", "Leaderboard", "--data", pool)))
    assert json.loads(board["replies"][0]["Data"])[0]["score"] == 0
    transfer = json.loads(ok(run("send", "--action", "Transfer", "--tag", "Recipient=siqa", "--tag", "Quantity=7")))
    assert "Debit-Notice" in [one["Action"] for one in transfer["replies"]]
    score = json.loads(ok(run("send", "--action", "Score", "--data", "tiny")))
    assert [one["Action"] for one in score["replies"]] == ["Score-Response"]


def test_data_comes_from_a_file(run: Run, pool: str, workspace: Path) -> None:
    file = workspace / "data.json"
    file.write_text(json.dumps([{**ROWS[0], "question": "From a file?"}]))
    sent = json.loads(ok(run("send", "--action", "Load-Data", "--data", f"@{file}")))
    assert json.loads(sent["replies"][0]["Data"])["added"] == 1
    wrong(run("send", "--action", "Load-Data", "--data", "@nowhere"), "nowhere")


def test_a_refused_message_prints_its_answer_once(run: Run, pool: str) -> None:
    status, out, err = run("send", "--action", "Transfer", "--tag", "Recipient=siqa", "--tag", "Quantity=999999")
    assert (status, err) == (1, "")
    found = json.loads(out)
    assert (found["state"], found["error"]) == ("refused", "Insufficient Balance!")
    assert [one["Action"] for one in found["replies"]] == ["Transfer-Error"]


def test_whose_action_is_not_guessed(run: Run, pool: str, questions: Path) -> None:
    wrong(run("send", "--action", "Info"), "--target")
    wrong(run("send", "--action", "Nonsense"), "--target", "Nonsense")
    assert run("send", "--action", "Info", "--target", "token")[0] == 0
    ok(run("dataset", "create", "siqa", "--name", "second", "--from", questions))
    wrong(run("send", "--action", "Evaluate"), "siqa, second")


@pytest.mark.parametrize("tag", ["x", "=x", "Action=Mint"])
def test_a_tag_that_is_none(run: Run, tag: str) -> None:
    ok(run("keygen"))
    assert run("send", "--action", "Balance", "--tag", tag)[0] == 2


# Ids that begin with a dash


@pytest.mark.parametrize(("typed", "expected"), [
    ("siqa", "siqa"),
    ("-Abcdefghi --json", "--json -- -Abcdefghi"),
    ("--json --bcdefghi", "--json -- --bcdefghi"),
    ("--dataset -Abcdefghi --fund 5", "--dataset -Abcdefghi --fund 5"),
    ("--dataset --bcdefghi -Abcdefghi", "--dataset --bcdefghi -- -Abcdefghi"),
    ("--executor local", "--executor local"),
    ("me -5", "me -- -5"),
    ("-x", "-x"),
    ("-- -Abcdefghi", "-- -Abcdefghi"),
])
def test_an_id_may_begin_with_a_dash(typed: str, expected: str) -> None:
    options = {"--json": False, "--dataset": True, "--fund": True, "--executor": True}
    assert ids_last(typed.split(), options) == expected.split()


# What was not said, or not clearly


def test_a_balance_of_nobody_is_refused(run: Run, pool: str) -> None:
    wrong(run("balance", "nosuch"), "nosuch", "no address")
    wrong(run("mint", "nosuch", 5), "nosuch", "no address")


def test_one_kind_of_clock_at_a_time(run: Run, pool: str) -> None:
    assert run("schedule", "--cron", "--systemd")[0] == 2
    assert run("schedule")[0] == 2
    assert "pool tick" in ok(run("schedule", "--cron"))


def test_no_folder_is_made_for_a_file(run: Run, pool: str, workspace: Path) -> None:
    wrong(run("leaderboard", pool, "--csv", "--out", workspace / "nope" / "x"), "there is no folder", "nope")
    wrong(run("leaderboard", pool, "--html", workspace / "nope" / "x"), "there is no folder", "nope")
    assert not (workspace / "nope").exists()


def test_a_folder_without_a_model_is_said(run: Run, pool: str, workspace: Path) -> None:
    (workspace / "empty").mkdir()
    assert f"no model in {workspace / 'empty'}" in run("model", "add", "one", "--path", "empty")[2]
    assert "taken for a name on the model hub" in run("model", "add", "two", "--path", "models/two")[2]
    (workspace / "empty" / "config.json").write_text("{}")
    assert "no model" not in run("model", "add", "three", "--path", "empty")[2]


def test_columns_are_shown_as_they_are_typed(run: Run, workspace: Path) -> None:
    (workspace / "rows.csv").write_text("prompt,right\nx?,no\n")
    ok(run("keygen"))
    columns = '{"question": "prompt", "answer": "right"}'
    ok(run("dataset", "create", "exact-match", "--from", "rows.csv", "--columns", columns))
    assert columns in ok(run("dataset", "info", "exact-match"))


def test_a_data_set_that_was_not_set_up_says_how_it_goes_on(run: Run, questions: Path) -> None:
    ok(run("keygen"))
    ok(run("mint", "me", 1))
    wrong(run("dataset", "create", "siqa", "--set", "Nonsense=1"), "Nonsense", "the same command with other settings")
    ok(run("dataset", "create", "siqa", "--from", questions))
    status, _, err = run("dataset", "create", "siqa", "--set", "Nonsense=1")
    assert status == 1 and "the same command" not in err


def test_too_many_days_are_named_by_their_option(run: Run, pool: str) -> None:
    status, _, err = run("create", "--dataset", "siqa", "--fund", 100, "--days", "1e9")
    assert (status, "--days" in err) == (2, True), err


def test_why_a_pool_could_not_be_opened_is_one_line(run: Run, pool: str) -> None:
    to = json.loads(ok(run("processes", "--json")))
    told = run("send", "--action", "Transfer", "--tag", "Recipient=" + next(
        one["id"] for one in to if one["kind"] == "pool"), "--tag", "Quantity=100", "--tag", "X-Dataset=siqa",
               "--tag", "X-Allocation=None")[1]
    (error,) = [reply for reply in json.loads(told)["replies"] if reply["Action"] == "Create-Pool-Error"]
    (words,) = [tag["value"] for tag in error["Tags"] if tag["name"] == "Error"]
    assert "\n" not in words and "choose one of" in words


def test_a_refused_connection_is_said_in_a_line(run: Run) -> None:
    ok(run("keygen"))
    wrong(run("list", "--url", "http://127.0.0.1:9"), "http://127.0.0.1:9: nobody answers there", "pool serve")
    status, _, err = run("list", "--url", "http://127.0.0.1:9")
    assert status == 1 and "HTTPConnectionPool" not in err and "urllib3" not in err


def test_evaluating_a_pool_starts_and_lists_its_own_models(run: Run, pool: str) -> None:
    other = ok(run("create", "--dataset", "siqa", "--fund", 100)).strip()
    for name, where in (("one", pool), ("two", other)):
        ok(run("model", "add", name, "--path", f"org/{name}"))
        ok(run("join", where, "--model", name))
    looked = ok(run("evaluate", pool))
    assert "one" in looked and "two" not in looked
    both = ok(run("evaluate"))
    assert "one" in both and "two" in both


def test_several_settled_pools_are_told_apart(run: Run, pool: str) -> None:
    for _ in range(2):
        ok(run("create", "--dataset", "siqa", "--fund", 10))
    ok(run("model", "add", "one", "--path", "org/one"))
    wrong(run("join", "siqa", "--model", "one"), f"{pool} (open, ends in 30.0 days)")
