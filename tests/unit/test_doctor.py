"""The doctor's lines: what each of them says of good and bad places, and that a broken check is unknown, not well."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from automate.arena.preflight.findings import error, passed
from automate.campaign.doctoring import checks as doctor_checks
from automate.campaign.doctoring import doctor
from automate.campaign.doctoring import probe as doctor_probe
from automate.campaign.doctoring import site as doctor_site
from automate.campaign.doctoring.checks import Check, Mark, attempt
from automate.campaign.doctoring.job import DoctorJob, script_text, seen_by_job
from automate.cluster.base import expand_log
from automate.cluster.queue import JobState, JobStatus
from automate.cluster.site import Association, parse_associations, parse_partitions
from automate.errors import ClusterError, SubmitError
from automate.filesystems import FileSystem, of_one_machine, of_path, parse_mounts
from automate.journal import write_json
from automate.serving.gpus import Gpu
from automate.settings import Judge, Settings, Slurm
from automate.workspace import Workspace
from tests.unit.support import make_settings, make_workspace

PARTITIONS = """
PartitionName=gpu AllowAccounts=ALL AllowQos=normal,long DenyAccounts=bad Default=YES MaxTime=1-0 State=UP TotalNodes=4
PartitionName=down AllowAccounts=mine AllowQos=ALL Default=NO MaxTime=UNLIMITED State=DOWN TotalNodes=2
"""


def marks(checks: Iterable[Check]) -> list[tuple[str, str]]:
    return [(check.mark.value, check.subject) for check in checks]


def only(checks: Iterable[Check]) -> Check:
    found = list(checks)
    assert len(found) == 1, found
    return found[0]


# One check


def test_a_check_that_breaks_is_unknown() -> None:
    def broken() -> Iterable[Check]:
        yield doctor_checks.ok("first", "fine")
        raise RuntimeError("boom")

    assert [(c.mark, c.what) for c in attempt("x", broken)] == [
        (Mark.OK, "fine"), (Mark.UNKNOWN, "could not be checked: RuntimeError: boom")]
    said = only(attempt("x", lambda: (_ for _ in ()).throw(ClusterError("no answer", todo="later"))))
    assert (said.mark, said.what, said.todo) == (Mark.UNKNOWN, "no answer", "later")


@pytest.mark.parametrize("data", [{}, {"mark": "splendid", "subject": "x", "what": "y"}, {"mark": "ok"}])
def test_a_line_that_can_t_be_read_is_unknown(data: Mapping[str, Any]) -> None:
    assert Check.from_json(dict(data)).mark is Mark.UNKNOWN


def test_findings_of_preflight_keep_their_code_and_level() -> None:
    assert doctor.of_finding(error("FH503", "slurm", "refused", "mend")) == Check(
        Mark.ERROR, "slurm (FH503)", "refused", "mend")
    assert doctor.of_finding(passed("FH503", "slurm", "fine")).mark is Mark.OK


def test_folders_that_can_be_written_and_one_that_can_t(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w")
    workspace.root.mkdir()
    assert {check.mark for check in doctor_checks.folders(workspace)} == {Mark.OK}
    workspace.logs.parent.mkdir(parents=True)
    workspace.logs.write_text("a file in the way")
    found = {check.subject: check for check in doctor_checks.folders(workspace)}
    assert found["folder: logs"].mark is Mark.ERROR and "can't be written" in found["folder: logs"].what
    assert not list(workspace.root.rglob(".flock-hpc-*"))


@pytest.mark.parametrize(("shift", "mark"), [(0.0, Mark.OK), (3600.0, Mark.WARNING), (-3600.0, Mark.WARNING)])
def test_a_clock_that_is_off_is_said(tmp_path: Path, shift: float, mark: Mark) -> None:
    check = only(doctor_checks.clock(make_workspace(tmp_path), lambda: time.time() + shift))
    assert check.mark is mark
    assert (f"{3600.0:.1f}"[:3] in check.what) == bool(shift) or "3599" in check.what


def test_sockets_can_be_opened_here_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Path("/tmp")
    before = set(short.glob("fhpc-*"))
    monkeypatch.setenv("TMPDIR", str(short))
    assert marks(doctor_checks.sockets()) == [("ok", "Unix socket"), ("ok", "loopback port")]
    assert not {path for path in short.glob("fhpc-*") if path.stat().st_uid == os.getuid()} - before - set(
        short.glob("fhpc-*/judge.sock"))


def test_the_judge_s_folder(tmp_path: Path) -> None:
    def said(**values: Any) -> Check:
        return only(doctor_checks.judge_folder(Judge.model_validate(values), tmp_path))

    assert said(kind="rehearsal").mark is Mark.NOTE
    assert "not given" in said().what and said().mark is Mark.ERROR
    assert said(path="nowhere").mark is Mark.ERROR
    (tmp_path / "j").mkdir()
    assert said(path="j").mark is Mark.ERROR
    (tmp_path / "j/config.json").write_text("{}")
    (tmp_path / "j/model.safetensors").write_bytes(b"x" * 3000)
    assert said(path="j").mark is Mark.OK and "3 kB" in said(path="j").what


# File systems

MOUNTS = """22 1 0:20 / / rw - ext4 /dev/sda rw
23 22 0:21 / /scratch rw,relatime shared:1 - lustre 10.0.0.1@o2ib:/fs rw
24 22 0:22 / /home\\040users rw - nfs4 server:/home rw
25 22 0:23 / /mem rw - tmpfs tmpfs rw
nonsense
"""


@pytest.mark.parametrize(("path", "kind", "shared"), [
    ("/scratch/me", "lustre", True), ("/home users/me", "nfs4", True), ("/mem/x", "tmpfs", False),
    ("/x", "ext4", False),
    ("/scratchy", "ext4", False)])
def test_the_file_system_of_a_path(path: str, kind: str, shared: bool) -> None:
    found = of_path(Path(path), parse_mounts(MOUNTS))
    assert found is not None and (found.kind, found.shared) == (kind, shared)


def test_folders_that_every_machine_has_for_itself() -> None:
    assert of_one_machine(Path("/tmp/x")) == "/tmp" and of_one_machine(Path("/tmpfoo")) is None


@pytest.mark.parametrize(("root", "slurm", "mark"), [
    ("/scratch/w", True, Mark.OK), ("/tmp/w", True, Mark.ERROR), ("/mem/w", True, Mark.ERROR),
    ("/opt/w", True, Mark.NOTE), ("/tmp/w", False, Mark.OK)])
def test_a_workspace_that_nodes_do_not_see_is_an_error(root: str, slurm: bool, mark: Mark) -> None:
    check = next(iter(doctor.places(make_workspace(root), slurm, parse_mounts(MOUNTS))))
    assert (check.subject, check.mark) == ("workspace", mark)


def test_settings_that_go_to_the_network_are_said() -> None:
    assert only(doctor.offline(make_workspace())).mark is Mark.OK
    off = only(doctor.offline(make_workspace(environment={"HF_HUB_OFFLINE": "0"})))
    assert off.mark is Mark.WARNING and "HF_HUB_OFFLINE" in off.what


@pytest.mark.parametrize(("mask", "words"), [(0o077, "nobody else"), (0o022, "not change"), (0o002, "change what")])
def test_what_the_group_may_do(mask: int, words: str) -> None:
    old = os.umask(mask)
    try:
        assert words in only(doctor.umask()).what
        assert os.umask(mask) == mask
    finally:
        os.umask(old)


@pytest.mark.parametrize(("status", "out", "mark"), [
    (0, "0.1.0\n", Mark.OK), (0, "9.9\n", Mark.ERROR), (1, "ModuleNotFoundError: automate\n", Mark.ERROR)])
def test_the_interpreter_of_jobs(status: int, out: str, mark: Mark) -> None:
    assert only(doctor.jobs_python(lambda _: (status, out))).mark is mark


# Slurm


def site_lines(**slurm: Any) -> list[Check]:
    settings, every = Slurm(**slurm), parse_partitions(PARTITIONS)
    return [check for name in doctor_site.wanted_partitions(settings, every)
            for check in doctor_site.partition_checks(settings, name, every, lambda _: {"idle": 3, "down*": 1})]


@pytest.mark.parametrize(("slurm", "wrong"), [
    ({}, []), ({"partition": "gpu"}, []), ({"partition": "none"}, ["partition none"]),
    ({"partition": "down", "account": "mine"}, ["partition down"]), ({"time": "2-00:00:00"}, ["time limit"]),
    ({"qos": "other"}, ["partition gpu"]), ({"account": "bad"}, ["partition gpu"]),
    ({"partition": "gpu,none"}, ["partition none"])])
def test_partition_time_and_qos_of_the_settings(slurm: Mapping[str, Any], wrong: Sequence[str]) -> None:
    found = [check for check in site_lines(**slurm) if check.mark is not Mark.OK]
    assert [check.subject for check in found] == list(wrong)
    assert all(check.mark is Mark.ERROR and check.todo for check in found)


def test_a_partition_without_nodes_that_are_up() -> None:
    every = parse_partitions(PARTITIONS)
    lines = list(doctor_site.partition_checks(Slurm(), "gpu", every, lambda _: {"down*": 3, "drained": 1}))
    assert lines[0].mark is Mark.WARNING and "3 down*" in lines[0].what


ROWS = parse_associations("mine||normal,long\nother|gpu|\n\n")


@pytest.mark.parametrize(("slurm", "known", "expected"), [
    ({}, ROWS, [Mark.OK]), ({"account": "mine", "qos": "long"}, ROWS, [Mark.OK, Mark.OK]),
    ({"account": "nope"}, ROWS, [Mark.ERROR]), ({"account": "mine", "qos": "nope"}, ROWS, [Mark.OK, Mark.ERROR]),
    ({"account": "x"}, None, [Mark.UNKNOWN]), ({"qos": "x"}, [], [Mark.UNKNOWN]), ({}, None, [])])
def test_account_and_qos_of_the_settings(slurm: Mapping[str, Any], known: list[Association] | None,
                                         expected: list[Mark]) -> None:
    assert [check.mark for check in doctor_site.account_checks(Slurm(**slurm), known)] == expected


# In the job


def test_gpus_of_the_job() -> None:
    settings = make_settings(slurm={"gpus": 2}, gpu={"memory_gb": 80})
    one = Gpu(0, "H100", 10, 81920, 0)
    assert only(doctor_probe.gpus(settings, [one, one], "550")).mark is Mark.OK
    assert only(doctor_probe.gpus(settings, [one], "550")).mark is Mark.ERROR
    assert only(doctor_probe.gpus(settings, [], None)).mark is Mark.UNKNOWN
    assert only(doctor_probe.gpus(settings, [one, Gpu(1, "H100", 60000, 81920, 99)], "550")).mark is Mark.WARNING
    unsized = list(doctor_probe.gpus(make_settings(), [one], "550"))
    assert unsized[1].todo.startswith("set gpu.memory_gb: 80")


@pytest.mark.parametrize(("status", "out", "mark"), [
    (0, '{"vllm": "0.11", "torch": "2.8", "cuda": "12.8", "gpus": 1}', Mark.OK),
    (0, '{"vllm": "0.11", "torch": "2.8", "cuda": "12.8", "gpus": 0}', Mark.ERROR),
    (0, 'warning\n{"vllm": "0.11", "problem": "no torch"}', Mark.OK), (0, "", Mark.ERROR),
    (1, "Traceback\nModuleNotFoundError: No module named 'vllm'", Mark.ERROR), (124, "no end", Mark.UNKNOWN)])
def test_what_importing_vllm_came_to(status: int, out: str, mark: Mark) -> None:
    assert doctor_probe.imported(status, out, gpus=1).mark is mark


def test_the_server_s_command_that_is_not_there(tmp_path: Path) -> None:
    check = only(doctor_probe.engine(make_settings(), tmp_path / "s", lambda _: (127, "")))
    assert check.mark is Mark.ERROR and "no command 'vllm'" in check.what


def test_vllm_is_imported_by_the_python_of_its_command(tmp_path: Path) -> None:
    asked: list[Sequence[str]] = []

    def run(arguments: Sequence[str]) -> tuple[int, str]:
        asked.append(arguments)
        return (0, "/env/bin/vllm\n#!/env/bin/python3.11 -s\n") if len(asked) == 1 else (0, '{"vllm": "1"}')

    lines = list(doctor_probe.engine(make_settings(), tmp_path / "s", run))
    assert asked[1][2:6] == ["inside", "/env/bin/python3.11", "-s", "-c"]
    assert marks(lines) == [("ok", "environment"), ("ok", "vLLM")]


def test_the_rehearsal_judge_answers_a_request(tmp_path: Path) -> None:
    check = only(asyncio.run(doctor_probe.request(Judge(kind="rehearsal"), tmp_path / "server.log")))
    assert check.mark is Mark.OK and "answered at unix:" in check.what


def test_some_of_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"x" * 5000)
    assert doctor_probe.read_some(tmp_path / "w")[0] == 5000


def test_what_is_being_looked_at_stands_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, seen = tmp_path / "r.json", list[str]()

    def check() -> Iterable[Check]:
        seen.append(json.loads(result.read_text())["now"])
        return [doctor_checks.ok("x", "fine")]

    monkeypatch.setattr(doctor_probe, "steps", lambda *_: {"one": check, "two": check})
    doctor_probe.probe(make_workspace(tmp_path), result, tmp_path / "s")
    found = json.loads(result.read_text())
    assert seen == ["one", "two"] and found["finished"] and len(found["checks"]) == 2


# Waiting for the job


class Fake:
    """A cluster that says what it is told to, and keeps what was asked of it."""

    kind = "slurm"

    def __init__(self, states: Sequence[JobStatus], on_submit: Any = None) -> None:
        self.states = list(states)
        self.cancelled: list[str] = []
        self.on_submit = on_submit
        self.names: dict[str, str] = {}

    def submit(self, script: Path, name: str, indexes: Sequence[int], parallel: int | None, after: str | None = None,
               exclude: str | None = None) -> str:
        assert not indexes
        self.names[name] = "41"
        if self.on_submit is not None:
            self.on_submit(script)
        return "41"

    def find(self, name: str, since: float) -> list[str]:
        return [self.names[name]] if name in self.names else []

    def look(self, jobs: Sequence[str], names: Sequence[str] = ()) -> dict[str, JobStatus]:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return dict.fromkeys(jobs, state)

    def cancel(self, jobs: Sequence[str]) -> list[str]:
        self.cancelled += jobs
        return []

    def check(self, script: Path) -> str | None:
        return None

    def log_path(self, pattern: str, job: str) -> Path:
        return expand_log(pattern, job)


PENDING = JobStatus("41", JobState.PENDING, "squeue", reason="Priority")
RUNNING = JobStatus("41", JobState.RUNNING, "squeue")
DONE = JobStatus("41", JobState.COMPLETED, "squeue")
FAILED = JobStatus("41", JobState.FAILED, "squeue")


def waited(tmp_path: Path, cluster: Fake, timeout: float = 60) -> tuple[list[Check], list[str], DoctorJob]:
    """The job's lines and what was said meanwhile; the clock runs by the pauses."""
    clock, told = [0.0], list[str]()

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    job = DoctorJob(make_workspace(tmp_path), cluster, told.append, timeout, lambda: clock[0], sleep)
    return job.run(), told, job


def writes(checks: Sequence[Check], **values: Any) -> Any:
    def write(script: Path) -> None:
        write_json(script.with_suffix(".json"), {"finished": True, "node": "n7", **values,
                                                 "checks": [check.as_json() for check in checks]})

    return write


def test_the_job_s_lines_come_back(tmp_path: Path) -> None:
    cluster = Fake([PENDING, RUNNING, DONE], writes([doctor_checks.ok("node", "n7")]))
    lines, told, job = waited(tmp_path, cluster)
    assert marks(lines) == [("ok", "node")] and job.finished
    assert told[1] == "job 41: pending: other jobs of the partition come first"


def test_a_job_that_never_starts_is_cancelled_with_its_reason(tmp_path: Path) -> None:
    cluster = Fake([PENDING])
    lines, told, _ = waited(tmp_path, cluster)
    assert only(lines).mark is Mark.ERROR
    assert "did not start within 60 s: Priority, other jobs of the partition come first" in lines[0].what
    assert cluster.cancelled == ["41"] and told[-1] == "job 41 is cancelled"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_wait_that_is_broken_off_leaves_no_job(tmp_path: Path, stop: type[BaseException]) -> None:
    cluster = Fake([RUNNING])
    job = DoctorJob(make_workspace(tmp_path), cluster, lambda _: None, 60, lambda: 0.0,
                    lambda _: (_ for _ in ()).throw(stop()))
    with pytest.raises(stop):
        job.run()
    assert cluster.cancelled == ["41"]


def test_stopped_while_the_job_is_handed_over_leaves_no_job(tmp_path: Path) -> None:
    def stop(_: Path) -> None:
        raise KeyboardInterrupt

    cluster = Fake([DONE], stop)
    with pytest.raises(KeyboardInterrupt):
        waited(tmp_path, cluster)
    assert cluster.cancelled == ["41"]


def test_a_job_of_a_killed_doctor_is_cancelled_by_the_next(tmp_path: Path) -> None:
    waited(tmp_path, Fake([DONE], writes([])))
    cluster = Fake([RUNNING, DONE], writes([]))
    lines, _, _ = waited(tmp_path, cluster)
    assert cluster.cancelled == ["41"] and "of an earlier doctor" in lines[0].what


def test_a_job_that_dies_in_the_middle_says_where(tmp_path: Path) -> None:
    cluster = Fake([FAILED], writes([doctor_checks.ok("node", "n7")], finished=False, now="vLLM"))
    lines, _, job = waited(tmp_path, cluster)
    assert marks(lines) == [("ok", "node"), ("unknown", "vLLM")] and not job.finished
    assert "it ended (failed)" in lines[1].what and ".err" in lines[1].todo


def test_a_job_that_leaves_nothing_is_an_error(tmp_path: Path) -> None:
    lines, _, _ = waited(tmp_path, Fake([FAILED]))
    assert only(lines).mark is Mark.ERROR and "neither results nor a log" in lines[0].what


def test_a_job_that_says_only_a_word_in_its_log(tmp_path: Path) -> None:
    def log(script: Path) -> None:
        script.with_name(f"{script.stem}_41.err").write_text("no such python\n")

    assert "no such python" in only(waited(tmp_path, Fake([FAILED], log))[0]).what


def test_a_refused_job_is_an_error_in_slurm_s_words(tmp_path: Path) -> None:
    def refuse(script: Path) -> None:
        raise SubmitError("sbatch refused x: Invalid account", todo="set slurm.account")

    cluster = Fake([DONE], refuse)
    cluster.find = lambda name, since: []  # type: ignore[method-assign]
    check = only(waited(tmp_path, cluster)[0])
    assert (check.mark, check.todo) == (Mark.ERROR, "set slurm.account") and "Invalid account" in check.what


def test_what_the_job_has_seen_settles_doubts(tmp_path: Path) -> None:
    _, _, job = waited(tmp_path, Fake([DONE], writes([])))
    doubts = [Check(Mark.ERROR, "workspace", "/tmp/w is on ext4, below /tmp, ...", "move"),
              Check(Mark.ERROR, "clock", "x")]
    settled = seen_by_job(doubts, job)
    assert settled[0] == Check(Mark.OK, "workspace", "/tmp/w is on ext4; node n7 sees it") and settled[1] == doubts[1]
    job.finished = False
    assert seen_by_job(doubts, job) == doubts


def test_the_script_has_a_batch_s_directives_environment_and_two_minutes() -> None:
    workspace = make_workspace("/w", slurm={"partition": "gpu", "time": "08:00:00", "options": {"requeue": True}},
                               judge={"path": "/j", "environment": {"modules": ["CUDA/12"], "venv": "/v"}},
                               environment={"X": "a b"})
    text = script_text(workspace, "doctor-x", Path("/w/d"), Path("/w/d/s.sh"), Path("/w/d/s.json"))
    for line in ("#SBATCH --time=00:02:00", "#SBATCH --partition=gpu", "#SBATCH --gres=gpu:1", "#SBATCH --requeue",
                 "    module load CUDA/12", "    source /v/bin/activate", "export X='a b'"):
        assert line in text.split("\n"), line
    assert "export HF_HUB_OFFLINE=1 " in text and "08:00:00" not in text and "--array" not in text


def test_a_rehearsal_s_script_asks_for_no_gpu_and_enters_nothing() -> None:
    workspace = Workspace(Path("/w"), Settings(judge=Judge(kind="rehearsal")), "-")
    text = script_text(workspace, "doctor-x", Path("/w/d"), Path("/w/d/s.sh"), Path("/w/d/s.json"))
    assert "--gres" not in text and "inside" not in text


def test_mounts_that_can_t_be_read_are_no_mounts() -> None:
    assert parse_mounts("") == [] and of_path(Path("/x"), []) is None
    assert FileSystem("fuse.glusterfs", "/", "x").shared
