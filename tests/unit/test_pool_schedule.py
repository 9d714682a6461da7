"""The clock: what is due happens once, also after a long sleep; the lines to install name the right paths."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from automate.errors import ConfigError
from automate.pools.schedule import due, lines, tick
from tests.unit.pool_rounds_support import add_model, begun, handled, siqa
from tests.unit.pool_support import DAY, HOUR, Bench, opened

HOSTILE = ["/data/plain", "/my data/it's 100% \"done\"", "/a$HOME/b`id`/c;d", "/ünï/%d/%%s"]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path) as bench:
        yield bench


def pool(bench: Bench, rows: int = 3) -> str:
    """An open pool of `rows` questions with one model; its id."""
    siqa(bench, rows)
    add_model(bench)
    bench.mint("ann", 1000)
    handled(bench.send("ann", "token", "Transfer", Recipient=bench.exchange.pool, Quantity="1000",
                       X_Dataset=bench.id("siqa"), X_Allocation="Equal"))
    made = str(bench.one("SELECT id FROM pools"))
    handled(bench.send("trainer", "pool", "Join-Pool", {"dataset": made, "model": "tiny"}))
    return made


def test_a_tick_does_what_is_due_once(bench: Bench) -> None:
    pool(bench)
    assert [message.action for message in due(bench.exchange, bench.clock.now)] == ["Evaluate", "Update-Leaderboard"]
    assert tick(bench.exchange, bench.clock.now) == {"Evaluate": 1, "Update-Leaderboard": 1, "Allocate-Rewards": 0}
    assert bench.one("SELECT count(*) FROM inferences") == 3
    assert due(bench.exchange, bench.clock.now) == []
    before = bench.dump()
    assert set(tick(bench.exchange, bench.clock.now + 1).values()) == {0}
    assert bench.dump("ticks") == {name: rows for name, rows in before.items() if name != "ticks"}


def test_a_clock_that_comes_late_misses_no_hour(bench: Bench) -> None:
    pool(bench)
    for late in (5_000, 3_000, 8_000, 1_000):
        assert tick(bench.exchange, bench.clock.now + late)["Evaluate"] == 1
        bench.clock.forward(HOUR)


def test_a_thousand_an_hour(bench: Bench) -> None:
    pool(bench, rows=1500)
    tick(bench.exchange, bench.clock.now)
    tick(bench.exchange, bench.clock.now + 1000)
    assert bench.one("SELECT count(*) FROM inferences") == 1000
    tick(bench.exchange, bench.clock.forward(HOUR))
    assert bench.one("SELECT count(*) FROM inferences") == 1500


def test_a_week_of_sleep_is_one_turn(bench: Bench) -> None:
    pool(bench)
    tick(bench.exchange, bench.clock.now)
    bench.clock.forward(7 * DAY)
    assert tick(bench.exchange, bench.clock.now) == {"Evaluate": 1, "Update-Leaderboard": 1, "Allocate-Rewards": 0}
    assert set(tick(bench.exchange, bench.clock.now).values()) == {0}


def test_a_pool_that_is_over_is_paid_once(bench: Bench) -> None:
    made = pool(bench)
    end = bench.one("SELECT end_time FROM pools")
    assert not [one for one in due(bench.exchange, end - 1) if one.action == "Allocate-Rewards"]
    bench.clock.now = end + 60 * DAY
    assert tick(bench.exchange, bench.clock.now)["Allocate-Rewards"] == 1
    assert bench.one("SELECT state FROM pools WHERE id = ?", made) != "open"
    assert tick(bench.exchange, bench.clock.forward(DAY))["Allocate-Rewards"] == 0
    assert bench.balance("trainer") + bench.balance("ann") == 1000


def test_a_crash_in_a_tick_is_made_good_by_the_next(tmp_path: Path) -> None:
    at = 1
    while True:
        with opened(tmp_path / str(at)) as bench:
            pool(bench, rows=2)
            crashed = bench.crash(at, partial(tick, bench.exchange, bench.clock.now))
            tick(bench.exchange, bench.clock.now)
            assert bench.one("SELECT count(*) FROM inferences") == 2
            assert bench.one("SELECT count(*) FROM attempts") == 2
            assert bench.one("SELECT count(*) FROM messages WHERE action = 'Update-Leaderboard'") == 1
            if not crashed:
                return
        at += 5


def test_nothing_is_sent_where_nothing_waits(bench: Bench) -> None:
    siqa(bench)
    assert due(bench.exchange, bench.clock.now) == []


def test_rows_under_way_are_looked_at_again(bench: Bench) -> None:
    begun(bench)
    assert [message.action for message in due(bench.exchange, bench.clock.now)] == ["Evaluate"]


# --- lines --------------------------------------------------------------------------------------------
def fake(tmp_path: Path, root: str) -> tuple[Path, Path]:
    """A workspace and a program that keeps its arguments beside itself, in folders of this name."""
    folder = tmp_path / root.lstrip("/")
    folder.mkdir(parents=True)
    program = folder / "flock hpc%"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$0.args"\n')
    program.chmod(0o755)
    return folder, program


def as_cron(line: str) -> str:
    """What cron gives to the shell: up to the first percent sign without a backslash, and those without theirs."""
    command = line.split(None, 5)[5]
    return re.split(r"(?<!\\)%", command)[0].replace("\\%", "%")


@pytest.mark.parametrize("root", HOSTILE)
@pytest.mark.parametrize("kind", ["cron", "scrontab"])
def test_the_lines_run_the_tick(tmp_path: Path, root: str, kind: str) -> None:
    folder, program = fake(tmp_path, root)
    text = lines("cron" if kind == "cron" else "scrontab", folder, str(program))
    (entry,) = [line for line in text.splitlines() if not line.startswith("#")]
    command = as_cron(entry) if kind == "cron" else entry.split(None, 5)[5]
    subprocess.run(["/bin/sh", "-c", command], check=True, cwd="/", timeout=20)
    assert Path(f"{program}.args").read_text().splitlines() == ["pool", "tick", "--workspace", str(folder)]
    assert (folder / "logs" / "pools" / "tick.log").exists()


@pytest.mark.parametrize("root", HOSTILE)
def test_the_units_run_the_tick(root: str) -> None:
    text = lines("systemd", Path(root), f"{root}/flock-hpc")
    (start,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(start)]  # it escapes in the same way
    assert words[-5:] == [f"{root}/flock-hpc", "pool", "tick", "--workspace", root]
    assert words[:-5] == ([] if root in ("/data/plain", "/ünï/%d/%%s") else ["/bin/sh", "-c", 'exec "$0" "$@"'])
    assert "Persistent=true" in text
    assert "%" not in start.replace("%%", "")
    assert "$" not in start.replace("$$", "")


def test_units_of_two_workspaces_have_two_names() -> None:
    assert lines("systemd", Path("/a"), "/x").splitlines()[0] != lines("systemd", Path("/b"), "/x").splitlines()[0]


def test_scrontab_can_name_the_machine() -> None:
    assert "#SCRON --nodelist=node-1\n" in lines("scrontab", Path("/w"), "/x", host="node-1")
    with pytest.raises(ConfigError, match="no name of a machine"):
        lines("scrontab", Path("/w"), "/x", host="a\n#SCRON --wrap=id")


@pytest.mark.parametrize(("folder", "program"), [("/a\n* * * * * id", "/x"), ("/a", "/x\r"), ("/a", ""), ("a", "/x")])
def test_paths_that_no_line_can_hold(folder: str, program: str) -> None:
    with pytest.raises(ConfigError):
        lines("cron", Path(folder), program)


def test_a_backslash_before_a_percent_sign_is_for_systemd_only() -> None:
    with pytest.raises(ConfigError, match="backslash"):
        lines("cron", Path("/a\\%b"), "/x")
    assert '"/a\\\\%%b"' in lines("systemd", Path("/a\\%b"), "/x")


def test_ticks_are_noted(bench: Bench) -> None:
    tick(bench.exchange, bench.clock.now)
    assert json.loads(json.dumps(bench.rows("SELECT DISTINCT last FROM ticks"))) == [{"last": bench.clock.now}]
