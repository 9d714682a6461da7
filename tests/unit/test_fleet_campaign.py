"""A campaign on a fleet: what its engine's job asks for, one batch of all models, the fleet and its GPU-hours."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from automate.arena.batches import Batch, batch_config, batch_script
from automate.arena.engine_job import FleetUse, engine_settings
from automate.arena.running.ending import End, decide
from automate.arena.running.fleet_beside import Beside
from automate.arena.running.fleet_play import FleetPlay, Work
from automate.arena.running.gpu_hours import Usage, gpus_of, hours_of_start, servers_that_fit, usage_of_servers
from automate.arena.running.job_config import JobConfig
from automate.campaign.budget import gpu_hours
from automate.campaign.fleets import playing
from automate.campaign.fleets.playing import fleet_for, refusal, use_of
from automate.campaign.handing import Request, Submitted, hand_in
from automate.campaign.planned import plan_anew
from automate.campaign.plans import StoredPlan, read_plans, same_work
from automate.campaign.state import CampaignState
from automate.cluster.own_job import own_job_id
from automate.cluster.queue import JobState
from automate.cluster.submit import SubmissionBook
from automate.errors import ClaimedError, ConfigError, SubmitError
from automate.fleet_places import FleetPlaces
from automate.fleets.handing import stop
from automate.fleets.jobs import jobs_of
from automate.journal import write_json
from automate.serving.fleet.records import Group
from automate.serving.fleet.registry import read_spec, read_wish
from automate.workspace import Workspace
from tests.unit.fleet_control_support import FakeCluster, run_record
from tests.unit.support import make_prompts, make_settings, make_workspace

GPU: dict[str, Any] = {
    "judge": {"kind": "vllm", "name": "j"},
    "slurm": {"time": "01:00:00", "gpus": 2, "gres": "gpu:h100:2", "constraint": "h100", "partition": "gpu",
              "mem": "200G", "options": {"gpus-per-task": 1, "comment": "kept"}},
}
NOBODY = CampaignState((), ())


def planned(workspace: Workspace, cluster: FakeCluster, use: FleetUse | None = None, models: int = 3) -> StoredPlan:
    """A plan for models m1, m2, ... with two games each."""
    todo = {f"m{number}": 2 for number in range(1, models + 1)}
    request = Request(tuple(todo), fleet=use or use_of(4, 4))
    return plan_anew(workspace, cluster, request, todo, NOBODY, [], prompts=make_prompts(), use=request.fleet)


def handed(workspace: Workspace, cluster: FakeCluster, stored: StoredPlan) -> Submitted:
    return hand_in(workspace, cluster, stored, Request(("m1",), fleet=stored.plan.use), NOBODY)


def servers(cluster: FakeCluster) -> list[int]:
    """How many servers each handing over asked for."""
    return [len(indexes) for name, indexes, _ in cluster.submits if name.startswith("serve-judge-")]


def places_of(workspace: Workspace) -> FleetPlaces:
    return FleetPlaces(workspace.root, "judge")


# --- the engine's job -----------------------------------------------------------------------------
def test_the_engine_asks_for_no_gpu() -> None:
    own = {"engine_slurm": {"partition": "cpu", "time": "08:00:00"}}
    slurm = engine_settings(make_settings(**GPU, fleet=own)).slurm
    assert (slurm.gpus, slurm.gres, slurm.constraint) == (0, None, None)
    assert (slurm.partition, slurm.time, slurm.mem, slurm.cpus_per_task) == ("cpu", "08:00:00", "8G", 2)
    assert slurm.options == {"comment": "kept"}


def test_its_settings_are_the_same_when_made_twice_and_take_no_gpu_hours() -> None:
    once = engine_settings(make_settings(**GPU))
    assert engine_settings(once) == once
    assert (gpus_of(once), hours_of_start(once)) == (0, 0.0)


def test_beside_the_first_server_it_asks_for_that_servers_gpu() -> None:
    settings = make_settings(**GPU, fleet={"engine": "beside"})
    assert engine_settings(settings) == settings


def test_script_and_yaml_of_the_engine(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, **GPU)
    plan = planned(workspace, FakeCluster()).plan
    config = batch_config(workspace, plan, plan.batches[0], make_prompts())
    own = yaml.safe_load(config)["flock_hpc"]
    assert own["fleet"] == {"name": "judge", "least": 4, "most": 4}
    assert own["settings"]["slurm"]["gres"] == "gpu:h100:2"
    text = batch_script(workspace, plan, plan.batches[0], config, "python3")
    directives = [line for line in text.split("\n") if line.startswith("#SBATCH")]
    assert [line for line in directives if "gres" in line or "gpu" in line] == ["#SBATCH --partition=gpu"]
    assert "#SBATCH --mem=8G" in directives
    assert " serve " not in text.replace("serve ADDRESS", "")
    assert "run-batch" in text


def test_without_a_fleet_nothing_of_one_is_in_the_yaml() -> None:
    workspace = make_workspace(**GPU)
    plan = replace(make_plan_of(workspace), use=None)
    assert "fleet" not in yaml.safe_load(batch_config(workspace, plan, plan.batches[0], make_prompts()))["flock_hpc"]


def make_plan_of(workspace: Workspace) -> Any:
    from automate.arena.batches import Plan

    return Plan("20260101_000000", "abcdef", "base", (Batch(1, ("m1",), 2),), use=use_of(2, 8))


# --- the plan -------------------------------------------------------------------------------------
def test_one_batch_has_all_models(tmp_path: Path) -> None:
    stored = planned(make_workspace(tmp_path, batch_size=2), FakeCluster(), models=7)
    assert [batch.models for batch in stored.plan.batches] == [tuple(f"m{n}" for n in range(1, 8))]


def test_the_fleet_stands_in_the_plan_and_another_one_is_other_work(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    stored = planned(workspace, FakeCluster(), use_of(2, 8))
    again = read_plans(workspace)[0]
    assert (again.plan.fleet, again.plan.use) == ("judge", use_of(2, 8))
    assert same_work(stored, again)
    assert not same_work(stored, replace(again, plan=replace(again.plan, use=use_of(2, 4))))
    assert not same_work(stored, replace(again, plan=replace(again.plan, use=None)))


@pytest.mark.parametrize("data", [None, 4, "judge", {}, {"name": "j"}, {"name": 1, "least": 1, "most": 1},
                                  {"name": "j", "least": 0, "most": 1}, {"name": "j", "least": 2, "most": 1},
                                  {"name": "j", "least": True, "most": 1}, {"name": "j", "least": "1", "most": 1}])
def test_what_names_no_fleet_is_none(data: object) -> None:
    assert FleetUse.of(data) is None


def test_what_means_nothing_with_a_fleet() -> None:
    def why(batch_size: int | None = None, max_parallel: int | None = None, **judge: Any) -> str:
        settings = make_settings(judge={"kind": "vllm", "name": "j", **judge})
        return refusal(settings, use_of(2, 8), batch_size=batch_size, max_parallel=max_parallel) or ""

    assert why() == ""
    assert "--batch-size" in why(batch_size=3)
    assert "2..8" in why(max_parallel=3)
    assert "openai" in why(kind="openai", base_url="http://x/v1")
    assert "builtin" in why(engine="upstream")


# --- handing in -----------------------------------------------------------------------------------
def test_fleet_engine_and_servers_are_handed_in_once_each(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path), FakeCluster()
    done = handed(workspace, cluster, planned(workspace, cluster))
    assert len(done.accepted) == 1
    assert servers(cluster) == [4]
    spec = read_spec(places_of(workspace))
    assert spec is not None
    assert spec.campaign == done.accepted[0].plan
    assert done.notes[-1] == "fleet 'judge' of 4: 4 servers submitted as job 2"


def test_the_fleet_of_an_earlier_campaign_is_used_and_scaled_up(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path), FakeCluster()
    handed(workspace, cluster, planned(workspace, cluster, use_of(2, 2)))
    first = read_spec(places_of(workspace))
    done = handed(workspace, cluster, planned(workspace, cluster, use_of(3, 5)))
    assert read_spec(places_of(workspace)) == first
    assert servers(cluster) == [2, 1]
    assert first is not None
    assert read_wish(places_of(workspace)).bounds_of(first.groups[0]) == (3, 5)
    assert any("is there already and is used" in note for note in done.notes)


def test_asking_for_fewer_takes_none_from_the_campaign_before(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path), FakeCluster()
    handed(workspace, cluster, planned(workspace, cluster, use_of(4, 4)))
    handed(workspace, cluster, planned(workspace, cluster, use_of(1, 1)))
    assert servers(cluster) == [4]
    assert read_wish(places_of(workspace)).wanted == {1: 4}


def test_a_fleet_that_serves_something_else_is_refused_before_anything_is_handed_in(tmp_path: Path) -> None:
    cluster = FakeCluster()
    handed(make_workspace(tmp_path), cluster, planned(make_workspace(tmp_path), cluster))
    other = make_workspace(tmp_path, judge={"kind": "vllm", "name": "other"})
    before = len(cluster.submits)
    with pytest.raises(ConfigError, match="serves something else") as refused:
        handed(other, cluster, planned(other, cluster))
    assert "flock-hpc serve --stop --name judge" in (refused.value.todo or "")
    assert len(cluster.submits) == before


def test_a_fleet_that_is_over_is_made_anew(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path), FakeCluster()
    handed(workspace, cluster, planned(workspace, cluster))
    first = read_spec(places_of(workspace))
    cluster.set_all(JobState.COMPLETED)
    handed(workspace, cluster, planned(workspace, cluster))
    assert read_spec(places_of(workspace)) != first
    assert servers(cluster) == [4, 4]


def test_one_that_is_being_stopped_is_waited_for_but_not_for_ever(tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, cluster = make_workspace(tmp_path), FakeCluster()
    handed(workspace, cluster, planned(workspace, cluster))
    spec = read_spec(places_of(workspace))
    assert spec is not None
    cluster.set_all(JobState.RUNNING)
    stop(places_of(workspace), spec, cluster)
    monkeypatch.setattr(playing, "ENDING", 0.0)
    with pytest.raises(ClaimedError, match="being stopped"):
        handed(workspace, cluster, planned(workspace, cluster))
    monkeypatch.setattr(playing, "ENDING", 60.0)
    monkeypatch.setattr(time, "sleep", lambda seconds: cluster.set_all(JobState.COMPLETED))
    assert handed(workspace, cluster, planned(workspace, cluster)).accepted


def test_an_engine_whose_servers_are_refused_is_in_the_queue_all_the_same(tmp_path: Path,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise SubmitError("sbatch refused: no")

    workspace, cluster = make_workspace(tmp_path), FakeCluster()
    monkeypatch.setattr(playing, "submit_workers", refuse)
    done = handed(workspace, cluster, planned(workspace, cluster))
    assert len(done.accepted) == 1
    assert "its engine asks again: sbatch refused: no" in done.notes[-1]


def test_beside_the_engine_there_is_one_server_less(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path, fleet={"engine": "beside"}), FakeCluster()
    handed(workspace, cluster, planned(workspace, cluster, use_of(2, 3)))
    spec = read_spec(places_of(workspace))
    assert spec is not None
    assert (spec.groups[0].least, spec.groups[0].most, servers(cluster)) == (1, 2, [1])


def test_the_limit_of_submitted_jobs_holds_for_servers_too(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path, limits={"max_submitted": 3}), FakeCluster()
    done = handed(workspace, cluster, planned(workspace, cluster))
    assert servers(cluster) == [2]
    assert done.notes[-1] == "2 servers more are asked for by the engine when there is room"


# --- GPU-hours ------------------------------------------------------------------------------------
def test_servers_are_submitted_as_far_as_gpu_hours_allow(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path, **GPU, limits={"max_gpu_hours": 5}), FakeCluster()
    done = handed(workspace, cluster, planned(workspace, cluster))
    assert servers(cluster) == [2]
    assert len(done.accepted) == 1
    assert gpu_hours(workspace, NOBODY) == Usage(0.0, 4.0)


def test_where_not_one_server_fits_nothing_is_handed_in(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path, **GPU, limits={"max_gpu_hours": 1.5}), FakeCluster()
    done = handed(workspace, cluster, planned(workspace, cluster))
    assert (done.accepted, done.waiting, cluster.submits) == ([], [1], [])
    assert done.why == ("limits.max_gpu_hours=1.5; 0.00 used or set aside, a server of the fleet takes up to 2.00")
    assert read_spec(places_of(workspace)) is None


def test_what_servers_used_and_may_yet_use_counts(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path, **GPU), FakeCluster()
    handed(workspace, cluster, planned(workspace, cluster, use_of(3, 3)))
    places, now = places_of(workspace), time.time()
    job = jobs_of(places, cluster)[0].job
    run_record(places, job, model="j", gpus=2, started=now - 1800, updated=now, ended=now)
    assert gpu_hours(workspace, NOBODY).used == pytest.approx(1.0, abs=0.01)
    assert gpu_hours(workspace, NOBODY).reserved == pytest.approx(4.0, abs=0.01)
    run_record(places, "elsewhere", model="another", gpus=8, started=now - 3600, updated=now, ended=now)
    assert gpu_hours(workspace, NOBODY).used == pytest.approx(1.0, abs=0.01)


def test_a_running_server_is_set_aside_for_until_its_time_limit() -> None:
    now = 10_000.0
    run = {"job": "1_0", "gpus": 1, "started": now - 900, "updated": now, "phase": "ready"}
    usage = usage_of_servers([run], frozenset({"1_0", "1_1"}), 1.0, now)
    assert usage.used == pytest.approx(0.25, abs=0.02)
    assert usage.total == pytest.approx(2.0)


def test_a_server_beside_the_engine_is_counted_with_the_engines_job() -> None:
    run = {"job": None, "gpus": 1, "started": 0.0, "updated": 3600.0, "ended": 3600.0, "phase": "ended"}
    assert usage_of_servers([run], frozenset(), 1.0, 4000.0) == Usage(0.0, 0.0)


@pytest.mark.parametrize(("cap", "used", "gpus", "limit", "room"), [
    (None, 5.0, 1, 3600.0, None), (10.0, 5.0, 0, 3600.0, None), (10.0, 5.0, 1, 3600.0, 5), (10.0, 5.0, 2, 3600.0, 2),
    (10.0, 9.5, 1, 3600.0, 0), (10.0, 50.0, 1, 3600.0, 0), (10.0, 0.0, 1, None, 0),
])
def test_how_many_more_servers_fit(cap: float | None, used: float, gpus: int, limit: float | None,
                                   room: int | None) -> None:
    group = Group(1, "j", "x.sh", 1, 1, gpus=gpus, time_limit=limit)
    assert servers_that_fit(cap, Usage(used, 0.0), group) == room


def test_every_intent_is_in_its_own_book(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path), FakeCluster()
    stored = planned(workspace, cluster)
    handed(workspace, cluster, stored)
    assert [one.tasks for one in SubmissionBook(workspace.submissions).all()] == [{1: 1}]
    assert [one.by for one in SubmissionBook(places_of(workspace).submissions).all()] == ["user"]
    assert fleet_for(workspace, cluster, replace(stored.plan, use=None), NOBODY) is None


# --- inside the engine's job ----------------------------------------------------------------------
def test_a_server_beside_the_engine_does_not_take_itself_for_the_job(tmp_path: Path) -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1", "FLOCK_HPC_JOB": "local-7_1",
               "SLURMD_NODENAME": "n1", "CUDA_VISIBLE_DEVICES": "0"}
    beside = Beside(FleetPlaces(tmp_path, "judge"), Group(1, "j", "x.sh", 1, 1), print, environ)
    assert own_job_id(beside.environ) is None
    assert (beside.environ["SLURMD_NODENAME"], beside.environ["CUDA_VISIBLE_DEVICES"]) == ("n1", "0")


def test_a_job_on_a_fleet_names_the_command_that_goes_on_with_it(tmp_path: Path) -> None:
    config = JobConfig(make_workspace(tmp_path), "20260101_000000", 1, ("m1",), None, "", tmp_path / "x.yaml",
                       fleet=use_of(2, 8))
    assert config.words.submit == "flock-hpc judge --fleet 2..8 --submit"
    assert replace(config, fleet=None).words.submit == "flock-hpc judge --submit"


def test_a_start_without_a_server_is_no_fault_of_its_time_limit() -> None:
    waited = End("time limit", left=5, played=0, starts=1, hindered=True)
    assert not waited.never_played
    assert decide(waited, None, most=3, local=True).kind == "requeue"


def test_the_engine_asks_for_no_server_that_gpu_hours_forbid(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path, **GPU, limits={"max_gpu_hours": 7}), FakeCluster()
    handed(workspace, cluster, planned(workspace, cluster, use_of(2, 8)))
    now = time.time()
    write_json(workspace.runs / "b1.json", {"plan": "p", "batch": 1, "job": "1_1", "judge": "j", "gpus": 0,
                                            "phase": "playing", "started": now - 3600, "updated": now})
    config = JobConfig(replace(workspace, settings=engine_settings(workspace.settings)), "p", 1, ("m1",), None, "",
                       tmp_path / "x.yaml", fleet=use_of(2, 8), servers=workspace.settings)
    play = FleetPlay(config, use_of(2, 8), print, lambda: Work(1, 0), environ={})
    spec = read_spec(places_of(workspace))
    assert spec is not None
    assert play.room_for(spec.groups[0]) == 1


def test_the_fleet_of_another_version_is_not_used(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path), FakeCluster()
    handed(workspace, cluster, planned(workspace, cluster))
    spec = read_spec(places_of(workspace))
    assert spec is not None
    write_json(places_of(workspace).spec, {**spec.as_json(), "version": "0.0.1"})
    with pytest.raises(ConfigError, match=r"flock-hpc 0\.0\.1"):
        handed(workspace, cluster, planned(workspace, cluster))
