"""What becomes of rounds: handed over once, again after a death, given up; scripts; what a look at them says."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import orjson
import pytest
import yaml

from automate.campaign.pools import jobs, servers
from automate.campaign.pools.looking import look, open_rounds
from automate.campaign.pools.rounds import Rounds
from automate.cluster.queue import JobState, JobStatus
from automate.errors import ClaimedError, ConfigError, DataError
from automate.journal import RecordWriter, replace_file, write_json
from automate.pools.answering.job import check_version
from automate.pools.messages import Receipt
from automate.pools.round_records import Answer, RoundSpec, Work, answer_record, spec_record, work_record
from automate.workspace import Workspace, open_workspace


@dataclass
class Here:
    """A cluster of this process's making."""

    kind: str = "slurm"
    states: dict[str, JobState] = field(default_factory=dict)
    submitted: list[Path] = field(default_factory=list)

    def submit(self, script: Path, name: str, indexes: Sequence[int], parallel: int | None, after: str | None = None,
               exclude: str | None = None) -> str:
        self.submitted.append(script)
        job = str(len(self.submitted))
        self.states[job] = JobState.RUNNING
        return job

    def find(self, name: str, since: float) -> list[str]:
        return []

    def look(self, asked: Sequence[str], names: Sequence[str] = ()) -> dict[str, JobStatus]:
        return {job: JobStatus(job, self.states[job], "here") for job in asked}

    def cancel(self, asked: Sequence[str]) -> list[str]:
        return []

    def check(self, script: Path) -> str | None:
        return None

    def log_path(self, pattern: str, job: str) -> Path:
        return Path(pattern)


@dataclass
class Asked:
    """A desk that remembers what it was asked to do."""

    done: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def send(self, signed: Mapping[str, object]) -> Receipt:
        raise AssertionError

    def ask(self, what: str, **given: str | int | None) -> object:
        raise AssertionError

    def do(self, what: str, **given: str | int | None) -> object:
        self.done.append((what, given))
        return 2

    def given_up(self) -> list[str]:
        """Rounds that were given up, in turn."""
        return [given["round"] for what, given in self.done if what == "give_up"]


@dataclass
class Rig:
    workspace: Workspace
    cluster: Here
    desk: Asked
    rounds: Rounds
    notes: list[str]
    started: list[list[str]]

    def make(self, name: str, *models: str, count: int = 2) -> RoundSpec:
        places = jobs.places_of(self.workspace)
        places.round(name).mkdir(parents=True)
        spec = RoundSpec(name, 1, count * len(models), {one: f"owner/{one}" for one in models}, {})
        chat = ({"role": "user", "content": "Which?"},)
        lines = [Work(f"{one}-{number}", one, chat, "generate", ("A",), 1) for one in models for number in range(count)]
        replace_file(places.work(name), (json_line(line) for line in lines))
        write_json(places.round_spec(name), spec_record(spec))
        return spec

    def record(self, name: str, *references: str) -> None:
        writer = RecordWriter(jobs.places_of(self.workspace).answers(name) / f"{len(references)}.jsonl")
        for one in references:
            writer.append(answer_record(Answer(one, "A", "m.1", 1, 2)))
        writer.close()


def json_line(line: Work) -> bytes:
    return orjson.dumps(work_record(line)) + b"\n"


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    root = tmp_path / "it's a \"$(workspace)\""
    root.mkdir()
    (root / "flock-hpc.yaml").write_text(yaml.safe_dump(
        {"cluster": "generic", "generate": {"kind": "rehearsal"}, "limits": {"resubmits": 1},
         "slurm": {"gpus": 4, "gres": "gpu:a100:4", "mem": "100G"}, "pools": {"slurm": {"mem": "2G", "gpus": 8}}}))
    workspace, cluster, desk = open_workspace(root), Here(), Asked()
    notes, started = list[str](), list[list[str]]()

    def start(where: Workspace, on: Any, spec: RoundSpec, models: Sequence[str]) -> list[str]:
        started.append(list(models))
        return []

    monkeypatch.setattr(servers, "start", start)
    monkeypatch.setattr("automate.campaign.pools.looking.cluster_of_kind", lambda *_: cluster)
    return Rig(workspace, cluster, desk, Rounds(workspace, cluster, desk, notes.append), notes, started)


def test_a_round_is_handed_over_once_while_its_job_may_act(rig: Rig) -> None:
    spec = rig.make("one", "m1", "m2")
    rig.rounds.hand_over(spec)
    rig.rounds.hand_over(spec)
    rig.rounds.care()
    assert len(rig.cluster.submitted) == 1
    assert rig.started[0] == ["m1", "m2"]


def test_after_a_death_it_is_handed_over_again_for_what_is_left_and_at_last_given_up(rig: Rig) -> None:
    rig.rounds.hand_over(rig.make("one", "m1", "m2"))
    rig.record("one", "m1-0", "m1-1", "m2-0")
    rig.cluster.states["1"] = JobState.FAILED
    rig.rounds.care()
    assert (len(rig.cluster.submitted), rig.started[1:]) == (2, [["m2"]]), "no server of what is answered"
    assert rig.desk.done == []
    rig.cluster.states["2"] = JobState.TIMEOUT
    rig.rounds.care()
    assert (len(rig.cluster.submitted), rig.desk.given_up()) == (2, ["one"])
    assert "hopeless" not in rig.desk.done[0][1]
    assert "its job ended 2 times" in rig.notes[-1]
    assert "its job ended 2 times" in rig.rounds.given_up["one"]


def test_a_second_job_that_ended_at_once_does_not_hide_the_one_at_work(rig: Rig) -> None:
    rig.rounds.hand_over(rig.make("one", "m1"))
    rig.cluster.states["1"] = JobState.FAILED
    rig.rounds.care()
    rig.cluster.states.update({"1": JobState.RUNNING, "2": JobState.FAILED})
    rig.rounds.care()
    view = look(rig.workspace)[0]
    assert (view.job, view.may_act, len(rig.cluster.submitted), rig.desk.done) == ("1", True, 2, [])


@pytest.mark.parametrize("state", [JobState.UNKNOWN, JobState.PENDING, JobState.REQUEUED, JobState.RUNNING])
def test_what_may_act_is_left_alone(rig: Rig, state: JobState) -> None:
    rig.rounds.hand_over(rig.make("one", "m1"))
    rig.cluster.states["1"] = state
    rig.rounds.care()
    assert (len(rig.cluster.submitted), rig.desk.done) == (1, [])


def test_a_round_whose_servers_can_not_be_loaded_is_given_up_at_once(rig: Rig,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    rig.rounds.hand_over(rig.make("one", "m1", "m2"))
    rig.record("one", "m1-0", "m1-1")
    rig.cluster.states["1"] = JobState.FAILED
    monkeypatch.setattr(servers, "hopeless", lambda *_: {"m2": "no such folder"})
    rig.rounds.care()
    assert rig.desk.given_up() == ["one"]
    assert json.loads(rig.desk.done[0][1]["hopeless"]) == {"m2": "no such folder"}, "its rows have failed this time"
    assert "no such folder" in rig.notes[-1]


class Slow(Here):
    """sbatch takes a moment, in which another command comes."""

    def submit(self, script: Path, name: str, indexes: Sequence[int], parallel: int | None, after: str | None = None,
               exclude: str | None = None) -> str:
        self.inside.set()
        self.go.wait(10)
        return super().submit(script, name, indexes, parallel, after, exclude)

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.go = Event(), Event()


def test_two_commands_at_once_hand_a_round_over_once(rig: Rig) -> None:
    cluster = Slow()
    rig.cluster = rig.rounds.cluster = cluster
    other = Rounds(rig.workspace, cluster, rig.desk, rig.notes.append)
    spec = rig.make("one", "m1")
    threads = [Thread(target=rig.rounds.hand_over, args=(spec,)), Thread(target=other.hand_over, args=(spec,))]
    threads[0].start()
    assert cluster.inside.wait(10)
    threads[1].start()
    threads[1].join(0.3)  # as long as it wants to wait while sbatch is slow
    cluster.go.set()
    for one in threads:
        one.join(20)
    assert len(cluster.submitted) == 1
    assert len(jobs.submissions_of(rig.workspace, "one")) == 1


def test_who_waits_too_long_for_another_command_is_told_of_it(rig: Rig) -> None:
    settings = rig.workspace.settings
    pools = settings.pools.model_copy(update={"lock_wait": 0.0})
    rig.rounds.workspace = replace(rig.workspace, settings=settings.model_copy(update={"pools": pools}))
    spec = rig.make("one", "m1")
    told = list[str]()

    def other() -> None:
        with pytest.raises(ClaimedError, match="another flock-hpc command hands evaluations over") as error:
            rig.rounds.hand_over(spec)
        told.append(error.value.what)

    with jobs.alone(rig.workspace):
        thread = Thread(target=other)
        thread.start()
        thread.join(20)
    assert len(told) == 1
    assert rig.cluster.submitted == []


def test_while_another_model_has_hope_it_goes_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.rounds.hand_over(rig.make("one", "m1", "m2"))
    rig.cluster.states["1"] = JobState.FAILED
    monkeypatch.setattr(servers, "hopeless", lambda *_: {"m2": "no such folder"})
    rig.rounds.care()
    assert rig.desk.done == []
    assert len(rig.cluster.submitted) == 2


def test_a_round_of_another_cluster_or_with_broken_files_is_given_up(rig: Rig) -> None:
    rig.rounds.hand_over(rig.make("one", "m1"))
    rig.cluster.states["1"] = JobState.FAILED
    rig.make("two", "m1")
    jobs.places_of(rig.workspace).round_spec("two").write_text("{")
    rig.rounds.cluster.kind = "local"
    rig.rounds.care()
    assert rig.desk.given_up() == ["one", "two"]


def test_what_goes_wrong_with_one_round_keeps_no_other_back(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.make("one", "m1")
    rig.make("two", "m2")

    def start(where: Workspace, on: Any, spec: RoundSpec, models: Sequence[str]) -> list[str]:
        if spec.name == "one":
            raise ConfigError("no room")
        return []

    monkeypatch.setattr(servers, "start", start)
    rig.rounds.care()
    assert len(rig.cluster.submitted) == 1
    assert any("no room" in note for note in rig.notes)


def test_models_that_can_not_be_served_come_into_no_round(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(workspace: Workspace, models: Sequence[str], given: Mapping[str, str]) -> None:
        if "bad" in given[models[0]]:
            raise ConfigError(f"{models[0]} is nowhere")

    monkeypatch.setattr(servers, "serve_what", serve)
    rows = [{"model": name, "process": f"p-{name}", "data_tx": f"x/{name}"} for name in ("a,b", "bad", "c")]
    assert rig.rounds.able(rows) == "p-a,b,p-c"
    assert rig.rounds.able([rows[0]]) is None
    assert rig.rounds.able([rows[1]]) == ""
    assert rig.rounds.able([]) is None, "others than pools may have asked"
    assert "bad is nowhere" in rig.notes[0]
    assert rig.desk.done[0] == ("unserved", {"models": json.dumps({"bad": "bad is nowhere"})})


def test_a_round_of_models_that_are_gone_is_given_up_with_the_reason(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(workspace: Workspace, models: Sequence[str], given: Mapping[str, str]) -> None:
        raise ConfigError(f"{models[0]} is nowhere")

    monkeypatch.setattr(servers, "serve_what", serve)
    rig.rounds.hand_over(rig.make("one", "m1"))
    assert rig.desk.given_up() == ["one"]
    assert json.loads(rig.desk.done[0][1]["hopeless"]) == {"m1": "m1 is nowhere"}


def test_a_look_counts_records_and_names_jobs(rig: Rig) -> None:
    rig.make("one", "m1")
    assert [(one.state, one.may_act, one.left) for one in look(rig.workspace)] == [("not handed over", False, 2)]
    rig.rounds.hand_over(rig.make("two", "m2"))
    rig.record("two", "m2-0")
    view = look(rig.workspace)[1]
    assert (view.job, view.state, view.may_act, view.answers, view.left) == ("1", "RUNNING", True, 1, 1)
    write_json(jobs.places_of(rig.workspace).done("one"), {})
    assert open_rounds(rig.workspace) == ["two"]


def test_a_script_is_for_a_cpu_and_quotes_all(rig: Rig) -> None:
    text = jobs.script_text(rig.workspace, RoundSpec("one", 1, 5, {"m1\n#SBATCH --gres=gpu:8": "a/b"}, {}), "/py thon")
    lines = text.splitlines()
    directives = [line for line in lines if line.startswith("#SBATCH")]
    assert not any("gpu" in line or "gres" in line for line in directives)
    assert "#SBATCH --mem=2G" in directives
    assert any(line.startswith("#SBATCH --signal=B:USR2@") for line in directives)
    command = text[text.index("exec "):].replace("\\\n", " ")
    words = shlex.split(command)
    assert words[1] == "/py thon"
    assert words[words.index("--workspace") + 1] == str(rig.workspace.root)
    assert words[words.index("--round") + 1] == "one"


def test_another_version_is_refused() -> None:
    with pytest.raises(ConfigError):
        check_version("0.0.0-other", "round one")


def test_a_round_with_broken_work_says_where(rig: Rig) -> None:
    spec = rig.make("one", "m1")
    jobs.places_of(rig.workspace).work("one").write_text("{}\n")
    with pytest.raises(DataError):
        rig.rounds.hand_over(spec)
