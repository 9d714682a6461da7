"""Scenarios: the file and its errors, when events are due, where jobs start, how they end, and time scaled down."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from automate.campaign.forecasts.rates import Interval
from automate.campaign.rehearsal.outcome import starts_of
from automate.campaign.rehearsal.pace import fitting_scale
from automate.campaign.rehearsal.stage import Load, notes, real_limit, scaled, stage_of
from automate.cli.rehearsing import print_rehearsal
from automate.cluster.local.executor import LocalCluster, LocalQueue, node_list
from automate.cluster.local.jobs import Running
from automate.cluster.local.schedule import Job, Node, may_requeue, schedule, time_limit, warning
from automate.cluster.queue import JobState
from automate.cluster.rehearsed.cluster import REFUSED, Rehearsal, State, read_rehearsal
from automate.cluster.rehearsed.events import Timeline, arrivals, never_struck
from automate.cluster.rehearsed.place import LineCounter, RehearsedCluster, batch_of
from automate.cluster.rehearsed.scenario import (
    KINDS,
    Event,
    Nodes,
    Random,
    Scenario,
    check_batches,
    find_scenario,
    parse_scenario,
    read_scenario,
    scenario_names,
    share_of,
)
from automate.errors import ConfigError, ManyErrors, SubmitError
from automate.serving.rehearsal_behaviour import Behaviour
from automate.serving.rehearsal_judge import RehearsalJudge
from automate.serving.rehearsal_place import Place, place_of, since_job
from automate.settings import Settings
from automate.yamlfile import parse_yaml


def scenario(text: str = "") -> Scenario:
    return parse_scenario(parse_yaml(text, "s.yaml"))


# --- the file -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", scenario_names())
def test_shipped_scenarios_can_be_read_and_say_what_they_show(name: str) -> None:
    path = find_scenario(name, Path())
    assert path.read_text().startswith("# Shows: ")
    assert read_scenario(path).load_time > 0


def test_the_shipped_ones() -> None:
    assert set(scenario_names()) == {"calm", "short-limits", "preemption", "bad-node", "flaky-servers",
                                     "refused-submits", "storm"}


@pytest.mark.parametrize(("text", "said"), [
    ("scale: 0", "s.yaml:1: scale: input should be greater than 0, found 0"),
    ("load_time: -1", "s.yaml:1: load_time: input should be greater than 0"),
    ("queue_wait: -1", "s.yaml:1: queue_wait: input should be greater than or equal to 0"),
    ("queue_wait: .inf\nscale: x", "s.yaml:1: queue_wait"),
    ("sclae: 3", "did you mean 'scale'?"),
    ("nodes: {slot: 1}", "s.yaml:1: nodes.slot: unknown key 'slot'\n  -> did you mean 'slots'?"),
    ("nodes: {count: 1, names: [a]}", "give names or count, not both"),
    ("nodes: {names: [a, a]}", "each once"),
    ("nodes: {names: ['a b']}", "'a b' is no name for a node"),
    ("load_times: {node9: 1}", "s.yaml:1: load_times.node9: no node 'node9'"),
    ("time_limit: soon", "expected seconds, a time such as 02:00:00, or a share"),
    ("time_limit: 0%", "expected seconds"),
    ("events:\n  - {at: 1, kind: kil_server}", "s.yaml:2: events[0].kind: unknown event 'kil_server'\n"
     "  -> did you mean 'kill_server'? known events: kill_server, kill_engine"),
    ("events:\n  - {at: 1, kind: qqqq}", "known events: kill_server"),
    ("events:\n  - {at: -1, kind: kill_job}", "s.yaml:2: events[0].at"),
    ("events:\n  - {kind: kill_job}", "needs one of at, after_games, random; here: none"),
    ("events:\n  - {at: 1, after_games: 2, kind: kill_job}", "here: at, after_games"),
    ("events:\n  - {after_games: many, kind: kill_job}", "a share of all games such as 30%"),
    ("events:\n  - {at: 1, kind: refuse_submits}", "refuse_submits needs for"),
    ("events:\n  - {at: 1, kind: refuse_submits, for: 0}", "s.yaml:2: events[0].for"),
    ("events:\n  - {at: 1, kind: kill_job, for: 3}", "kill_job takes no for"),
    ("events:\n  - {at: 1, kind: submit_limit, limit: 0}", "events[0].limit"),
    ("events:\n  - {at: 1, kind: node_down, node: nod1}", "no node 'nod1' in this scenario\n"
     "  -> did you mean 'node1'?"),
    ("events:\n  - {at: 1, kind: kill_job, fro: 3}", "unknown key 'fro'\n  -> did you mean 'for'?"),
    ("events:\n  - {at: 1, kind: kill_job, xyz: 3}", "known keys here: kind, at, after_games, random, node"),
    ("events:\n  - {random: {evry: 3}, kind: kill_job}", "did you mean 'every'?"),
    ("events:\n  - kill_job", "s.yaml:2: events[0]: expected a mapping\n  -> events are written as {at: 600,"),
    ("events: [", "s.yaml:1: not valid YAML"),
])
def test_what_is_wrong_in_a_file_is_named_with_its_line(text: str, said: str) -> None:
    with pytest.raises((ConfigError, ManyErrors)) as caught:
        scenario(text)
    assert said in str(caught.value)


def test_all_problems_at_once() -> None:
    with pytest.raises(ManyErrors) as caught:
        scenario("scale: 0\nevents:\n  - {at: 1, kind: nothing}\n")
    assert len(caught.value.errors) == 2


def test_a_name_nobody_knows() -> None:
    with pytest.raises(ConfigError, match="no scenario named 'clam'") as caught:
        find_scenario("clam", Path())
    assert "did you mean 'calm'?" in str(caught.value)
    assert find_scenario("mine.yaml", Path("/here")) == Path("/here/mine.yaml")


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_can_be_written_and_is_done_by_the_cluster(kind: str) -> None:
    values = {"node": "node1", "batch": 1, "for": 5, "limit": 2, "factor": 2}
    event = Event.model_validate({"kind": kind, "at": 0, **{key: values[key] for key in KINDS[kind].needs}})
    assert Event.model_validate(event.model_dump(by_alias=True)) == event
    assert kind in RehearsedCluster._happens


@pytest.mark.parametrize(("value", "seconds"), [(90, 90), ("50%", 500), ("12.5 %", 125), ("00:10:00", 600), ("5", 300)])
def test_shares(value: float | str, seconds: float) -> None:
    assert share_of(value, 1000) == seconds


# --- events -------------------------------------------------------------------------------------------
def test_events_come_once_at_their_time_in_scaled_seconds() -> None:
    line = Timeline([Event(kind="kill_job", at=60), Event(kind="preempt", after_games="50%")], 60.0, 10)
    assert line.due(0.9, 4) == []
    assert [index for index, _ in line.due(1.0, 4)] == [0]
    assert line.due(2.0, 4) == []
    assert [event.kind for _, event in line.due(2.0, 5)] == ["preempt"]
    assert line.due(9.0, 9) == []


def test_an_event_that_found_nothing_comes_again_and_one_by_chance_does_not() -> None:
    line = Timeline([Event(kind="kill_job", at=0), Event(kind="kill_job", random=Random(every=10, times=1))], 1.0, 10)
    found = [index for index, _ in line.due(1000.0, 0)]
    assert found == [0, 1]
    for index in found:
        line.back(index)
    assert [index for index, _ in line.due(1000.1, 0)] == [0]
    assert line.due(1000.2, 0) == []


def test_chance_is_the_same_for_one_seed_and_as_frequent_as_asked() -> None:
    one, other = ([next(moments) for _ in range(400)] for moments in (arrivals(5, 1, None), arrivals(5, 2, None)))
    assert one == [moment for moment, _ in zip(arrivals(5, 1, None), range(400), strict=False)] != other
    assert 4 < one[-1] / 400 < 6
    assert len(list(arrivals(5, 1, 3))) == 3


def test_a_runner_that_is_started_again_repeats_no_event() -> None:
    line = Timeline([Event(kind="kill_job", at=0)], 1.0, 10, {0: 1})
    assert line.due(5.0, 0) == []


# --- where jobs start -----------------------------------------------------------------------------------
def job(number: int, index: int | None = None, **more: object) -> Job:
    name = f"local-{number}" + (f"_{index}" if index is not None else "")
    return {"job": name, "number": number, "index": index, "name": "judge-array-x", "created": 0.0, **more}


def where(starts: list[tuple[Job, str]]) -> dict[str, str]:
    return {one["job"]: node for one, node in starts}


def test_this_machine_starts_as_many_as_the_submission_says_and_ignores_exclude() -> None:
    waiting = [job(1, i, parallel=2, exclude=["here"]) for i in (1, 2, 3)]
    starts, reasons = schedule(waiting, [], [Node("here")], now=1.0)
    assert where(starts) == {"local-1_1": "here", "local-1_2": "here"}
    assert reasons == {"local-1_3": "JobArrayTaskLimit"}
    starts, reasons = schedule(waiting[1:], [{**waiting[0], "host": "here"}], [Node("here")], now=1.0)
    assert where(starts) == {"local-1_2": "here"}


def test_nodes_have_slots_and_the_emptiest_is_taken() -> None:
    nodes = [Node("a", 1), Node("b", 2)]
    starts, reasons = schedule([job(1, i) for i in range(4)], [], nodes, now=1.0, own_machine=False)
    assert sorted(where(starts).values()) == ["a", "b", "b"]
    assert where(starts)["local-1_0"] == "b"
    assert reasons == {"local-1_3": "Resources"}


def test_an_array_s_own_limit_leaves_room_for_others() -> None:
    waiting = [job(1, 1, at_once=1), job(1, 2, at_once=1), job(2)]
    starts, reasons = schedule(waiting, [], [Node("a", 5)], now=1.0, own_machine=False)
    assert set(where(starts)) == {"local-1_1", "local-2"}
    assert reasons == {"local-1_2": "JobArrayTaskLimit"}


@pytest.mark.parametrize(("more", "nodes", "why"), [
    ({"begin": 50.0}, [Node("a", 1)], "BeginTime"),
    ({"created": 95.0}, [Node("a", 1)], "Priority"),
    ({"exclude": ["a"]}, [Node("a", 1)], "BadConstraints"),
    ({"exclude": ["b"]}, [Node("a", 1, up=False), Node("b", 1)], "ReqNodeNotAvail"),
    ({"after": ["local-7"]}, [Node("a", 1)], "Dependency"),
    ({"after": ["local-7", "local-8"]}, [Node("a", 1)], None),
    ({"after": ["local-8"]}, [Node("a", 1)], None),
    ({"created": 95.0, "restart": 1}, [Node("a", 1)], None),
])
def test_why_a_job_waits(more: dict[str, object], nodes: list[Node], why: str | None) -> None:
    now = 40.0 if "begin" in more else 100.0
    other = {**job(7, 3), "host": "elsewhere"}
    starts, reasons = schedule([{**job(1), **more}], [other], nodes, now=now, queue_wait=10.0, own_machine=False)
    assert (reasons.get("local-1"), bool(starts)) == (why, why is None)


@pytest.mark.parametrize(("text", "names"), [
    (None, []), ("a,b", ["a", "b"]), ("n[1-3],x", ["n1", "n2", "n3", "x"]), ("n[01-02,5]", ["n01", "n02", "n5"])])
def test_node_lists(text: str | None, names: list[str]) -> None:
    assert node_list(text) == names


# --- how jobs end -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("text", "found"), [
    ("B:USR2@120", (signal.SIGUSR2, 120.0)), ("B:SIGUSR1", (signal.SIGUSR1, 60.0)), ("B:10@5", (10, 5.0)),
    ("USR2@120", None), ("B:NONE@3", None), ("", None)])
def test_the_signal_before_the_limit(text: str, found: tuple[int, float] | None) -> None:
    notice = warning({"signal": text} if text else {})
    assert (None if notice is None else (notice.number, notice.lead)) == found


def test_limits_and_requeue_as_the_script_asks() -> None:
    assert time_limit({"time": "00:00:20"}) == 20
    assert time_limit({}) == float("inf")
    assert may_requeue({"requeue": ""})
    assert not may_requeue({"no-requeue": ""})


def start_job(folder: Path, trap: str) -> Running:
    """A job that has set its trap and runs until it is ended."""
    process = subprocess.Popen(["bash", "-c", f"{trap}; touch ready; while :; do sleep 0.05; done"], cwd=folder,
                               start_new_session=True)
    deadline = time.monotonic() + 30
    while not (folder / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return Running.of({**job(1), "host": "node1"}, process, {"time": "00:01:00", "signal": "B:USR2@20"},
                      folder / "job.err")


@pytest.fixture
def entry(tmp_path: Path) -> Running:
    return start_job(tmp_path, "trap 'echo USR2 >>said' USR2")


def test_a_job_at_its_limit_is_told_then_ended_and_ends_as_timeout(entry: Running, tmp_path: Path) -> None:
    try:
        entry.tick(entry.began + 39, 30)
        assert entry.notice is not None
        entry.tick(entry.began + 41, 30)
        assert entry.notice is None
        assert entry.ending is None
        deadline = time.monotonic() + 30
        while not (tmp_path / "said").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert (tmp_path / "said").read_text() == "USR2\n"
        entry.tick(entry.began + 60, 30)
        assert entry.outcome(entry.process.wait(30), cancelled=False) == (JobState.TIMEOUT, "TimeLimit")
        assert "*** JOB local-1 ON node1 CANCELLED AT" in entry.log.read_text()
        assert "DUE TO TIME LIMIT ***" in entry.log.read_text()
    finally:
        entry.kill()


def test_a_preempted_job_that_does_not_end_is_killed(tmp_path: Path) -> None:
    entry = start_job(tmp_path, "trap '' TERM")
    entry.end(JobState.PREEMPTED, 5.0, requeue=True)
    assert entry.ending is not None
    assert entry.ending.requeue
    entry.tick(time.monotonic() + 4, 30)
    assert entry.process.poll() is None
    entry.tick(time.monotonic() + 6, 30)
    assert entry.outcome(entry.process.wait(30), cancelled=False)[0] is JobState.PREEMPTED


def test_a_job_that_says_no_is_not_put_into_the_queue_again(entry: Running) -> None:
    entry.requeues = False
    entry.end(JobState.NODE_FAIL, 0.0, requeue=True)
    assert entry.ending is not None
    assert not entry.ending.requeue
    assert entry.outcome(entry.process.wait(30), cancelled=False) == (JobState.NODE_FAIL, "NodeFailure")


# --- the cluster's files -----------------------------------------------------------------------------------
@pytest.fixture
def queue(tmp_path: Path) -> LocalQueue:
    found = LocalQueue(tmp_path / "local")
    found.folder.mkdir()
    return found


def cluster(queue: LocalQueue, text: str, games: int = 10) -> RehearsedCluster:
    Rehearsal(scenario(text), games, queue.folder / "journal", os.getpid(), None).save(queue.rehearsal_file)
    return RehearsedCluster.of(queue)


def test_a_rehearsal_is_read_as_it_was_written(queue: LocalQueue) -> None:
    text = "scale: 30\nevents:\n  - {at: 0, kind: refuse_submits, for: 60}\n"
    made = cluster(queue, text)
    read = read_rehearsal(queue.rehearsal_file)
    assert read is not None
    assert read.scenario == scenario(text) == made.scenario
    assert read_rehearsal(queue.folder / "none.json") is None
    queue.rehearsal_file.write_text("{}")
    with pytest.raises(ConfigError):
        read_rehearsal(queue.rehearsal_file)


def test_submissions_are_refused_in_slurm_s_words(queue: LocalQueue, tmp_path: Path) -> None:
    script = tmp_path / "x.sh"
    script.write_text("#!/bin/bash\n")
    cluster(queue, "events:\n  - {at: 0, kind: refuse_submits, for: 6000}\n").step([], queue)
    with pytest.raises(SubmitError, match="QOSMaxSubmitJobPerUserLimit") as caught:
        LocalCluster(queue.folder, tmp_path).submit(script, "name", [1, 2], None)
    assert "wait until fewer of your jobs" in str(caught.value)
    assert queue.jobs() == []
    assert len(queue.refused_file.read_text().splitlines()) == 1


def test_a_submit_limit_counts_what_waits_and_runs() -> None:
    state = State(submit_limit=3, limit_until=100.0)
    assert state.refusal(1, 2, now=50.0) is None
    assert state.refusal(2, 2, now=50.0) == REFUSED
    assert state.refusal(2, 2, now=101.0) is None


def test_a_silent_queue_knows_nothing_and_takes_nothing_for_ended(queue: LocalQueue, tmp_path: Path) -> None:
    queue.save({**job(1, state="RUNNING"), "pid": 1, "pid_start": "x"})
    cluster(queue, "events:\n  - {at: 0, kind: queue_silent, for: 6000}\n").step([], queue)
    status = LocalCluster(queue.folder, tmp_path).look(["local-1"])["local-1"]
    assert status.state is JobState.UNKNOWN
    assert status.may_act
    assert "Unable to contact slurm controller" in status.evidence


def test_nodes_fail_and_come_back_and_what_they_do_to_servers_is_published(queue: LocalQueue, tmp_path: Path) -> None:
    made = cluster(queue, "scale: 60\nload_time: 120\nload_times: {node2: 240}\nevents:\n"
                          "  - {at: 0, kind: node_down, node: node1, for: 1}\n"
                          "  - {at: 0, kind: bad_node, node: node2}\n"
                          "  - {at: 0, kind: slow_disk, factor: 3}\n")
    made.step([], queue)
    assert [node.up for node in made.nodes] == [False, True]
    assert LocalCluster(queue.folder, tmp_path).nodes_up() == {"node2"}
    assert made.avoid("node2") == ["node2"]
    assert made.avoid("node1") == []
    place = place_of({"FLOCK_HPC_REHEARSED_CLUSTER": str(queue.cluster_file), "FLOCK_HPC_NODE": "node2"})
    assert place.load_seconds == 12.0
    assert "uncorrectable ECC error" in str(place.fault)
    time.sleep(0.05)
    made.step([], queue)
    assert [node.up for node in made.nodes] == [True, True]
    assert [words for _, words in made.state.log][-1] == "node1 is back"


def test_a_cancel_strikes_the_batch_that_it_names(queue: LocalQueue) -> None:
    for index in (1, 2):
        queue.save({**job(1, index, state="PENDING")})
    cluster(queue, "events:\n  - {at: 0, kind: cancel, batch: 2}\n").step([], queue)
    assert queue.cancel_file("local-1_2").exists()
    assert not queue.cancel_file("local-1_1").exists()


def test_batches_by_name_or_index() -> None:
    assert batch_of({"name": "judge-batch-12-abc", "index": None}) == 12
    assert batch_of({"name": "judge-array-abc", "index": 3}) == 3
    assert batch_of({"name": "other", "index": None}) is None


def test_games_are_counted_as_they_are_written(tmp_path: Path) -> None:
    counter, file = LineCounter(tmp_path), tmp_path / "m" / "x.jsonl"
    file.parent.mkdir()
    file.write_text('{"a": 1}\n{"b"')
    assert counter.count() == 1
    with file.open("a") as more:
        more.write(": 2}\n")
    assert counter.count() == 2


def test_a_queue_is_closed_when_its_command_is_gone(queue: LocalQueue) -> None:
    assert not cluster(queue, "").stays_open()  # the owner's start time is another's


def test_every_start_of_a_job_is_known() -> None:
    first = {"node": "a", "started": 1.0, "ended": 2.0, "state": "PREEMPTED", "exit": 1}
    ended = {**job(1), "starts": [first], "started": 3.0, "ended": 5.0, "state": "COMPLETED", "host": "b"}
    assert [start["state"] for start in starts_of(ended)] == ["PREEMPTED", "COMPLETED"]
    assert starts_of({**job(1), "starts": [first], "started": 3.0, "ended": None, "state": "RUNNING"}) == [first]


# --- the judge on a node --------------------------------------------------------------------------------------
def test_loading_counts_from_the_job_s_start_and_a_second_load_is_a_whole_one() -> None:
    place = Place(10.0)
    assert place.apply(Behaviour(load_seconds=3), since_job=1.5).load_seconds == 8.5
    assert place.apply(Behaviour(load_seconds=3), since_job=60).load_seconds == 10.0
    assert Place().apply(Behaviour(load_seconds=3), since_job=60).load_seconds == 3
    broken = Place(10.0, "ECC").apply(Behaviour(), since_job=0)
    assert broken.die_while_loading
    assert broken.load_seconds < 10


def test_outside_of_a_rehearsal_there_is_no_place() -> None:
    assert place_of({}) == Place()
    assert place_of({"FLOCK_HPC_REHEARSED_CLUSTER": "/nowhere", "FLOCK_HPC_NODE": "a"}) == Place()
    assert since_job({}) == float("inf")
    assert since_job({"FLOCK_HPC_JOB_STARTED": "10"}, now=12.0) == 2.0


async def test_a_server_is_as_fast_as_its_rates_and_a_lone_reply_as_slow_as_its_tokens() -> None:
    judge = RehearsalJudge("m", Behaviour(prompt_rate=100.0, output_rate=10.0, latency_per_token=0.5))
    assert judge._seconds(100, 10) == pytest.approx(5.0)  # alone: its tokens one by one
    for _ in range(3):
        judge._seconds(100, 10)
    assert judge._seconds(100, 10) == pytest.approx(10.0, abs=0.1)  # the fifth of those that share the server


# --- time scaled down ------------------------------------------------------------------------------------------
LOAD = Load(games=15_000, batches=1, prompt_tokens=2450, output_tokens=700)


def test_a_real_campaign_keeps_the_real_rates() -> None:
    stage = stage_of(Scenario(least_play=600), Settings(), LOAD)
    assert stage.slower == 1
    assert stage.play == pytest.approx(8346, rel=0.01)
    assert stage.in_flight == 130_000 // 3150
    assert notes(Scenario(), stage) == []


def test_a_small_one_is_slowed_down_and_asked_a_few_at_a_time() -> None:
    stage = stage_of(Scenario(least_play=600), Settings(), Load(24, 1, 800, 700))
    assert stage.play == pytest.approx(600)
    assert stage.in_flight == 3
    data = scaled(Settings(), Scenario(least_play=600), stage)
    assert Settings.model_validate(data).judge.concurrency == 3


def test_rates_of_the_settings_are_taken_where_the_scenario_has_none() -> None:
    settings = Settings.model_validate({"gpu": {"prompt_tokens_per_second": 1000, "output_tokens_per_second": 100}})
    assert stage_of(Scenario(), settings, LOAD).game_seconds == pytest.approx(2.45 + 7)
    assert stage_of(Scenario(output_tokens_per_second=700), settings, LOAD).game_seconds == pytest.approx(2.45 + 1)


def test_settings_in_real_seconds_are_valid_and_touch_no_real_judge() -> None:
    user = Settings.model_validate({
        "judge": {"path": "/models/x", "api_key_env": "KEY", "kind": "openai", "base_url": "https://x/v1",
                  "max_cost": 3, "price": {"input_per_million": 1}},
        "slurm": {"time": "02:00:00", "exclude": "n1"}, "limits": {"max_gpu_hours": 5}})
    stage = stage_of(Scenario(scale=60), user, LOAD)
    settings = Settings.model_validate(scaled(user, Scenario(scale=60), stage))
    assert settings.judge.kind == "rehearsal"
    assert settings.judge.name.endswith("-rehearsal")
    assert (settings.judge.path, settings.judge.api_key_env, settings.judge.base_url) == (None, None, None)
    assert settings.slurm.time == "00:02:00"
    assert settings.executor == "local"
    assert settings.limits.drain == 3.0
    assert settings.judge.rehearsal["output_rate"] == pytest.approx(60 / 3.82e-4, rel=1e-3)


def test_the_time_limit_may_be_a_share_of_an_average_batch() -> None:
    stage = stage_of(Scenario(time_limit="50%", load_time=100), Settings(), LOAD)
    assert stage.time_limit == pytest.approx((100 + stage.play) / 2, abs=60)
    assert real_limit(stage) == "00:01:11"
    endless = Settings.model_validate({"slurm": {"time": "UNLIMITED"}})
    assert real_limit(stage_of(Scenario(), endless, LOAD)) == "UNLIMITED"


@pytest.mark.parametrize("more", [{"time_limit": 200.0}, {"time_limit": 400.0}, {"scale": 5000.0}])
def test_a_scenario_that_could_never_finish_is_refused(more: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="could never finish"):
        stage_of(Scenario(load_time=300, **more), Settings(), LOAD)


def test_what_this_machine_can_t_do_is_said_before() -> None:
    fast = Scenario(scale=1200, nodes=Nodes(count=4), load_time=3000)
    said = " ".join(notes(fast, stage_of(fast, Settings(), Load(150_000, 10, 2450, 700))))
    assert "it may not keep up: --scale" in said
    quick = Scenario(scale=100, load_time=60)
    assert "use --scale 40 or less" in " ".join(notes(quick, stage_of(quick, Settings(), LOAD)))


@pytest.mark.parametrize(("cost", "scale"), [(0.5, 60.0), (3.0, 60.0), (6.0, 30.0), (1000.0, 1.0)])
def test_the_scale_is_lowered_where_jobs_start_slowly(cost: float, scale: float) -> None:
    assert fitting_scale(Scenario(scale=60, load_time=240), cost) == scale


def test_events_that_never_struck_are_named_with_their_reason(queue: LocalQueue) -> None:
    place = cluster(queue, "events: [{at: 0, batch: 77, kind: kill_server}, {after_games: 300%, kind: kill_job}, "
                           "{at: 0, node: node1, kind: bad_node}, {at: 90000, kind: kill_job}]")
    place.step([], queue)
    assert never_struck(place.scenario.events, place.state.fired, place.state.struck) == [
        "event 1 (kill_server) never struck: nothing of batch 77 was there to strike",
        "event 2 (kill_job) never struck: after_games 300% was not reached",
        "event 4 (kill_job) never struck: the rehearsal ended before 90000 s"]


def test_a_batch_that_the_plan_does_not_have_is_refused() -> None:
    events = scenario("events: [{at: 5, kind: kill_server, batch: 3}, {at: 5, batch: 77, kind: kill_server}]").events
    with pytest.raises(ConfigError, match=r"event 2 \(kill_server\): there is no batch 77"):
        check_batches(events, 3)


@pytest.mark.parametrize(("hours", "there"), [(0.0, False), (1.5, True)])
def test_gpu_hours_are_reported_only_where_gpus_are_asked_for(hours: float, there: bool) -> None:
    forecast = SimpleNamespace(seconds=Interval(1, 2, 3), gpu_hours=Interval(hours, hours, hours), batches=(),
                               assumptions=())
    outcome = SimpleNamespace(
        wall_seconds=2.0, gpu_hours=hours, starts=1, requeues=0, wait_seconds=1.0, outcomes={}, complete=True,
        finished=1, games=1, lost=0, twice=0, rows=1, gave_up="", rounds=1, events=(), deaths={}, ends={}, refused=0,
        unstruck=("event 1 (kill_job) never struck: there was nothing to strike",), excluded=(), own_seconds=1.0)
    console = Console(file=io.StringIO(), width=100)
    print_rehearsal(console, SimpleNamespace(forecast=forecast, outcome=outcome,  # type: ignore[arg-type]
                                             stage=SimpleNamespace(scale=60.0), folder=None))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("GPU-hours" in said) is there
    assert "event 1 (kill_job) never struck" in said
