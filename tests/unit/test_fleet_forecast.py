"""What a campaign takes on a fleet: each server loads once; next to batches; the page's example is computed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from automate.arena.engine_job import FleetUse
from automate.campaign.forecasts.estimates import BatchSize, JobLimits, forecast_batches
from automate.campaign.forecasts.fleets import Compared, besides_games, compare, forecast_fleet
from automate.campaign.forecasts.forecast import rates_of
from automate.campaign.forecasts.rates import Guess, Rates, assumed
from automate.cli.main import cli
from automate.cli.views.fleet_plan import comparison
from automate.cluster.queue import JobState
from automate.errors import ConfigError
from automate.fleet_places import FleetPlaces
from automate.workspace import open_workspace
from tests.unit.fleet_support import spec
from tests.unit.support import ROOT, make_settings
from tests.unit.test_forecast import JUDGE, NOW, end, simulate, view
from tests.unit.test_plan import JUDGE as NAME
from tests.unit.test_plan import change, plan, root, write_run

__all__ = ["root"]
LIMITS = JobLimits(12 * 3600.0, 300.0, 1)
GAMES = 1500


def rates(load: float = 600.0) -> Rates:
    """A 70B judge on one GPU, without history, that loads in exactly so many seconds."""
    plain = assumed(make_settings(judge={"name": "judge"}))
    return replace(plain, load=Guess(load, 0.0, "given"), overhead=Guess(30.0, 0.0, "given"))


def sizes(models: int, games: int = GAMES) -> list[BatchSize]:
    return [BatchSize(number, 1, games, games * 2450.0, games * 700.0) for number in range(1, models + 1)]


def compared(models: int, servers: int, load: float, *, batch: int = 1) -> Compared:
    known, every = rates(load), sizes(models)
    batches = forecast_batches(every, known, replace(LIMITS, parallel=servers))
    return compare([forecast_fleet(every, known, LIMITS, servers)], batches, known, batch)


def example() -> str:
    """The page's table: 117 models, a load of ten minutes, batches of 1 next to a fleet of 4."""
    titles, table = comparison(compared(117, 4, 600.0))
    kept = [row for row in table if "between" not in row[0]]
    kept = [[row[0].strip(), *(cell.partition(" (")[0] for cell in row[1:])] for row in kept]
    lines = [f"| {' | '.join(['', *titles[1:]])} |", "|---|---:|---:|", *(f"| {' | '.join(row)} |" for row in kept)]
    return "\n".join(lines).replace(" (80 %)", "")


def test_the_page_has_the_table_that_the_function_gives() -> None:
    assert example() in (ROOT / "docs" / "plan.md").read_text(encoding="utf-8"), example()


def test_each_server_loads_once_and_the_work_is_the_same() -> None:
    known, every = rates(), sizes(117)
    fleet = forecast_fleet(every, known, LIMITS, 4)
    batches = forecast_batches(every, known, replace(LIMITS, parallel=4))
    work = known.work(117 * GAMES, 117 * GAMES * 2450.0, 117 * GAMES * 700.0)
    assert fleet.loads == 4 and fleet.games == 117 * GAMES
    assert fleet.besides.mid == pytest.approx(4 * (600 + 30 + known.game_seconds / 2))
    assert fleet.server_seconds.mid == pytest.approx(work + fleet.besides.mid)
    assert fleet.seconds.mid == pytest.approx(600 + 30 + work / 4 + known.game_seconds / 2)
    assert fleet.gpu_hours.mid == pytest.approx(fleet.server_seconds.mid / 3600)
    assert besides_games(batches, known) == pytest.approx(117 * (600 + 30 + known.game_seconds / 2))


def test_what_is_not_spent_on_games_is_servers_over_batches() -> None:
    """The gain is the number of servers over the number of batches, whatever the load takes."""
    for load in (20.0, 600.0, 3600.0):
        found = compared(24, 4, load)
        assert found.fleets[0].besides.mid / found.besides == pytest.approx(4 / 24)


@pytest.mark.parametrize("servers", [1, 2, 4, 8, 32])
def test_more_servers_finish_sooner_and_load_more(servers: int) -> None:
    free = replace(LIMITS, time_limit=math.inf)
    few, many = (forecast_fleet(sizes(117), rates(), free, count) for count in (servers, servers + 1))
    assert many.seconds.mid < few.seconds.mid and many.besides.mid > few.besides.mid
    for one in (few, many):
        for interval in (one.seconds, one.server_seconds, one.besides, one.gpu_hours):
            assert interval.low <= interval.mid <= interval.high


def test_a_time_limit_costs_a_load_of_each_server_a_start() -> None:
    short = replace(LIMITS, time_limit=2 * 3600.0)
    fleet = forecast_fleet(sizes(117), rates(), short, 4)
    assert fleet.starts is not None and fleet.starts[1] >= 4 and fleet.loads == 4 * fleet.starts[1]
    assert fleet.besides.mid > forecast_fleet(sizes(117), rates(), LIMITS, 4).besides.mid
    assert fleet.gpu_hours.high <= fleet.gpu_hours_at_most


def test_a_server_that_would_never_play_is_said() -> None:
    fleet = forecast_fleet(sizes(3), rates(), replace(LIMITS, time_limit=700.0), 2)
    assert fleet.starts is None and len(fleet.problems) == 1 and "too short for a server" in fleet.problems[0]


def test_nothing_to_play_takes_nothing_and_no_more_servers_than_games_count() -> None:
    assert forecast_fleet(sizes(2, 0), rates(), LIMITS, 4).server_seconds.mid == 0.0
    assert forecast_fleet([BatchSize(1, 1, 3, 9.0, 9.0)], rates(), LIMITS, 50).servers == 3
    unlimited = forecast_fleet(sizes(2), rates(), replace(LIMITS, time_limit=math.inf, gpus=0), 4)
    assert unlimited.gpu_hours.mid == 0.0 and math.isfinite(unlimited.seconds.high)


# --- the command --------------------------------------------------------------------------------------
def test_the_command_shows_a_fleet_next_to_batches(root: Path) -> None:
    change(root, batch_size=1)
    text = plan(root, "--fleet", "2")
    assert "batches of 1 fleet of 2" in text and "loads of the judge 3 2" in text
    assert "GPU-hours" in text and "finish" in text


def test_a_range_of_servers_has_a_column_for_each_end(root: Path) -> None:
    text = plan(root, "--fleet", "1..3")
    assert "fleet of 1 fleet of 3" in text
    done = CliRunner().invoke(cli, ["plan", "--json", "--workspace", str(root), "--fleet", "1..3"])
    found = json.loads(done.output)["fleet"]
    assert [one["servers"] for one in found["fleets"]] == [1, 3]
    assert json.loads(CliRunner().invoke(cli, ["plan", "--json", "--workspace", str(root)]).output)["fleet"] is None


def test_a_fleets_servers_teach_how_long_loading_takes_and_its_engine_nothing(root: Path) -> None:
    runs = FleetPlaces(root, "judge").runs
    runs.mkdir(parents=True)
    for number, seconds in enumerate((610.0, 620.0, 630.0)):
        one = {"id": f"g1-{number}", "model": NAME, "gpus": 1, "loads": [seconds], "load": {"filesystem": "nfs"}}
        (runs / f"{number}.json").write_bytes(orjson.dumps(one))
    FleetPlaces(root, "judge").spec.write_bytes(orjson.dumps(spec(name="judge").as_json()))
    write_run(root, fleet={"name": "judge"}, play_seconds=1.0, load=[])
    found = rates_of(open_workspace(root))
    assert found.load.value == 620.0 and found.batches == 0
    write_run(root)
    assert rates_of(open_workspace(root)).batches == 1


@pytest.mark.parametrize(("more", "given", "word"), [
    ((), {"judge": {"kind": "openai", "name": "j", "base_url": "http://127.0.0.1:1/v1"}}, "openai"),
    (("--max-parallel", "2"), {}, "--max-parallel"), ((), {}, "no number of servers")])
def test_a_fleet_that_cant_be_is_refused(root: Path, more: tuple[str, ...], given: dict[str, object],
                                         word: str) -> None:
    change(root, **given)
    fleet = "0" if word == "no number of servers" else "2"
    done = CliRunner().invoke(cli, ["plan", "--workspace", str(root), "--fleet", fleet, *more])
    assert isinstance(done.exception, ConfigError) and word in str(done.exception)


def test_an_engines_end_counts_its_servers() -> None:
    """As many as were asked for before any is ready, then as many as are."""
    history = simulate(3, 10)

    def seconds(servers: int, run: dict[str, Any] | None = None) -> float:
        one = view(1, JobState.RUNNING if run else JobState.PENDING, run, time="UNLIMITED")
        plan = replace(one.stored.plan, use=FleetUse("judge", servers, servers))
        found = end([replace(one, stored=replace(one.stored, plan=plan))], {"m1": 1_000_000}, history)
        return float(found.mid - NOW)

    assert seconds(1) == pytest.approx(2 * seconds(2), rel=0.02) == pytest.approx(4 * seconds(4), rel=0.02)
    loading = {"phase": "loading", "started": NOW - 5, "judge": JUDGE}
    assert seconds(4, {**loading, "fleet": {"ready": 1}}) == pytest.approx(4 * seconds(4, loading), rel=0.02)
