"""Hand-made pictures of campaigns, for the tests of what the monitor shows."""

from __future__ import annotations

from typing import Any

from automate.campaign.monitoring.failures import Failure
from automate.campaign.monitoring.picture import (
    AnswerLine,
    BadNode,
    BatchLine,
    Finish,
    JobLine,
    ModelLine,
    Queue,
    Snapshot,
)
from automate.campaign.monitoring.vitals import GpuLine, Rates, ServerLine

NOW = 1_700_000_000.0
HOSTILE = ("[bold red]markup[/] and [/nothing]", "escape\x1b[31mred\x1b]0;title\x07", "line\nbreak\r\ttab",
           "模型-中文名字-很长很长很长的名字-step48000-最终", "emoji-🧪🧪🧪🧪🧪🧪-👩‍👩‍👧", "rtl-\u202egnp.exe",
           "n" * 300, "e\u0301" * 60, "\u0000\u0085\u2028")


def model(name: str, state: str = "partial", games: int = 700, wanted: int = 1500, **more: Any) -> ModelLine:
    """A model's line."""
    values: dict[str, Any] = {
        "answers": 750, "empty_answers": 0, "missing_answers": 0, "questions": games // 2, "games": games,
        "wanted": wanted, "due": wanted - games, "nulls": {}, "unverified": 0, "other_prompt": 0, "short_labels": 0,
        "stale": 0, "retrying": 0, "batch": 1, **more}
    return ModelLine(name, state, **values)


def job(batch: int, state: str = "running", **more: Any) -> JobLine:
    """A job's line."""
    values: dict[str, Any] = {
        "name": f"judge-{batch}", "reason": "", "evidence": "squeue", "elapsed": "15:30", "nodes": "c1",
        "node_count": "1", "partition": "capella", "user": "alice", **more}
    return JobLine(f"4711_{batch}", batch, "20240101_000000", state=state, **values)


def playing(batch: int, **more: Any) -> JobLine:
    """A job in the middle of its games, with a server and a GPU."""
    server = ServerLine(31, 4, 0.62, 480_000, 12_340, 2_110, 0.44, 5)
    gpus = (GpuLine(0, "NVIDIA H100", 71_000, 81_559, 97),)
    return job(batch, phase="playing", phase_seconds=930, rate=1.63, played=412, due=7500, in_flight=31, age=4,
               server=server, gpu_use=gpus, starts=1, **more)


def picture(models: tuple[ModelLine, ...] = (), **more: Any) -> Snapshot:
    """A snapshot with nothing but what is given."""
    values: dict[str, Any] = {
        "judge": "neuralmagic-llama3.1-70b-instruct-fp8", "judge_kind": "vllm", "bench": "arena-hard-v2.0",
        "notices": (), "problems": (), "baseline": "llama3.1-8b-instruct",
        "baseline_answers": {"llama3.1-8b-instruct": 750}, "running": (), "pending": (), "unknown": (), "failures": (),
        "logs": (), **more}
    return Snapshot(time=NOW, models=models, **values)


def batch(number: int, state: str, games: int, wanted: int, models: tuple[str, ...] = (), why: str = "") -> BatchLine:
    """A batch's line."""
    return BatchLine(number, "20240101_000000", state, None if state == "planned" else f"4711_{number}", models, games,
                     wanted, wanted - games, why)


def failed(number: int, **more: Any) -> Failure:
    """A failed batch."""
    values: dict[str, Any] = {
        "state": "failed", "cause": "judge server: out of memory", "todo": "use more GPUs (slurm.gpus and "
        "judge.server.tensor_parallel_size), a smaller judge.server.max_model_len, or a quantised judge",
        "evidence": "sacct", "log": "/somewhere/log.err", "kind": "judge_server", "due": 1234, "node": "c3",
        "facts": ("sacct: FAILED after 0:12:00 on c3, exit 1:0", "its judge server died 2x, last: out of memory"),
        "next": "did not requeue itself: it would fail again like this", **more}
    return Failure(number, "20240101_000000", f"4711_{number}", **values)


def campaign(models: int = 120, size: int = 10) -> Snapshot:
    """A large campaign in the middle: complete, playing, loading, pending, failed and unsubmitted batches."""
    lines, batches = [], []
    states = {1: "completed", 2: "completed", 3: "running", 4: "running", 5: "running", 6: "failed", 7: "queued"}
    for number in range(1, models // size + 1):
        state = states.get(number, "queued" if number < 11 else "planned")
        names = tuple(f"tulu3-8b-rank64-alpha1e5-{number:03d}-step{step * 6000}" for step in range(1, size + 1))
        games = {"completed": 1500, "running": 640, "failed": 210}.get(state, 0)
        for name in names:
            kind = "complete" if games == 1500 else "partial" if games else "waiting"
            lines.append(model(name, kind, games, batch=number, nulls={"unparsed": 3} if kind == "complete" else {},
                               retrying=2 if state == "failed" else 0))
        batches.append(batch(number, state, games * size, 1500 * size, names,
                             "not submitted: 'flock-hpc judge --submit' does that" if state == "planned" else ""))
    pending = [job(number, "queued", nodes="", elapsed="0:00", reason="Priority",
                   words="other jobs of the partition come first") for number in (8, 9, 10)]
    return picture(
        tuple(lines), running=(playing(3), playing(4, note="its judge server died 1x (last: killed) and was started "
                                               "again"),
                               job(5, phase="loading", phase_seconds=200, load_expected=300, age=3, nodes="c12")),
        pending=(job(7, "queued", reason="BeginTime", words="may not start before its begin time", nodes="",
                     note="last start ended by time limit; requeued itself, start 3 of at most 21"), *pending),
        failures=(failed(6),), batches=tuple(batches), bad_nodes=(BadNode("c3", 2, "the node's fault"),),
        logs=tuple((f"/home/alice/ws/logs/arena-hard/judgment_batches/judge-batch-{n}_4711_{n}_20240101_000000.out",
                    1000 * n, NOW - 60 * n) for n in range(1, 6)),
        rates=Rates(3.26, 24_680, 4_220, 62, 8, 0.62, 0.44, 142_000, 163_118, 97, 3, 0),
        finish=Finish(NOW + 40_000, NOW + 32_000, NOW + 55_000), gpu_hours=34.2, max_gpu_hours=120.0,
        queue=Queue(NOW - 4), notices=("not Arena-Hard's prompt (flock-hpc's own prompts)",))


def generating(names: tuple[str, ...] = ("one", "two", "three")) -> Snapshot:
    """A campaign that makes answers beside its games: jobs of both kinds, a failure, a batch that waits for room."""
    lines = tuple(AnswerLine(name, 750, 300 if place else 740, 440 if place else 0, 2 * place, place, {"too_long": 10},
                             place, "can't be read" if place == 2 else "") for place, name in enumerate(names))
    waiting = BatchLine(4, "20240101_000001", "planned", None, names, 0, 750, 750, "waits for room (MaxSubmitJobs)",
                        kind="generate")
    answers = (playing(1, kind="generate"), job(2, phase="draining", kind="generate", rate=7.0))
    return picture(
        tuple(model(name, "no answers", 0, 0) for name in names), running=(playing(1), *answers),
        pending=(job(3, "queued", reason="Priority", words="others come first", nodes="", kind="generate"),),
        unknown=(job(5, "unknown", evidence="no Slurm here", kind="generate"),),
        failures=(failed(6, work="generate"),), batches=(waiting, batch(4, "planned", 0, 10, why="not submitted")),
        baseline_answers={names[-1]: None}, answers=lines, rates=Rates(answers_per_second=12.5, jobs=2))
