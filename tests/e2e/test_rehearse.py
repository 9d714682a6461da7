"""`rehearse`: whole campaigns under scenarios; every game once, and the user's campaign untouched. And the local
executor's own time limits, which a rehearsal rests on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from automate.cluster.local.executor import LocalCluster, LocalQueue
from tests.e2e.support import (
    EXAMPLES,
    assert_nothing_runs,
    change_settings,
    command,
    environment,
    eventually,
    flock,
    make_workspace,
    processes_of,
    rows_folder,
    said,
)

HEAD = "nodes: {count: 3}\nload_time: 150\nrequeue_delay: 30\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_workspace(tmp_path / "ws", batch_size=1)


def rehearse(root: Path, scenario: str, *args: str, status: int = 0) -> str:
    """Rehearse a scenario of HEAD and these lines to its end; what was said."""
    file = root.parent / "scenario.yaml"
    play = "" if "least_play" in scenario else "least_play: 300\n"
    file.write_text(HEAD + play + scenario)
    done = flock("rehearse", str(file), *args, cwd=root)
    assert done.returncode == status, f"exit {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return said(done)


def files_of(root: Path) -> dict[Path, bytes]:
    """Every file of a workspace with its bytes."""
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def kept(root: Path) -> Path:
    """The one rehearsal that was kept."""
    found = list((root / ".flock-hpc" / "rehearsals").iterdir())
    assert len(found) == 1
    return found[0]


def test_limits_preemption_and_a_cancelled_batch_lose_nothing_and_touch_nothing(root: Path) -> None:
    before = files_of(root)
    text = rehearse(root, "least_play: 480\ntime_limit: 75%\nevents:\n  - {after_games: 10%, kind: preempt}\n"
                          "  - {after_games: 30%, kind: cancel, batch: 2}\n",
                    "--models", *EXAMPLES[:2])
    assert "48 of 48 games are finished (48 verdict); missing 0, played twice 0; 24 rows" in text
    assert "is preempted" in text
    assert "batch 2 is cancelled" in text
    assert "batch 2: cancelled with" in text
    assert "'judge --submit --wait' had to be given" in text
    assert int(re.search(r"put into the queue again \d+ (\d+)", text)[1]) >= 1  # type: ignore[index]
    assert re.search(r"first start to last end \d+ min", text)
    assert files_of(root) == before
    assert not (root / ".flock-hpc").exists()
    assert_nothing_runs(root)


def test_bad_nodes_dying_servers_and_refusals_lose_nothing(root: Path) -> None:
    text = rehearse(root, "events:\n  - {at: 0, kind: refuse_submits, for: 90}\n"
                          "  - {at: 0, kind: bad_node, node: node2}\n  - {after_games: 5%, kind: kill_server}\n"
                          "  - {after_games: 20%, kind: kill_engine}\n"
                          "  - {after_games: 40%, kind: node_down, node: node1, for: 60}\n", "--keep")
    assert "72 of 72 games are finished (72 verdict); missing 0, played twice 0; 36 rows" in text
    assert "sbatch said QOSMaxSubmitJobPerUserLimit" in text
    assert "judge server(s) died: the node's fault" in text
    assert "1 start(s) ended NODE_FAIL" in text
    assert "kept away from: node2" in text
    space = kept(root)
    script = (space / "generated_judgment_scripts" / "run_arena_hard_judgment_batch_1.sh").read_text()
    assert "#SBATCH --signal=B:USR2@" in script
    rows = list((space / "arena-hard-auto" / "data").glob("*/model_judgment/*/*.jsonl"))
    assert {path.stem for path in rows} == set(EXAMPLES)
    assert not rows_folder(root).exists()
    assert_nothing_runs(root)


def test_a_campaign_that_can_t_go_on_ends_with_the_reason(root: Path) -> None:
    text = rehearse(root, "events:\n" + "".join(f"  - {{at: 0, kind: bad_node, node: node{i}}}\n" for i in (1, 2, 3)),
                    status=1)
    assert "given up: 72 games are still due" in text
    assert "servers have died on every node" in text
    assert kept(root).is_dir()  # to look at
    assert_nothing_runs(root)


def test_what_can_t_be_rehearsed_is_said_before_anything_is_made(root: Path) -> None:
    file = root.parent / "bad.yaml"
    file.write_text("events:\n  - {at: 1, kind: kil_server}\n")
    done = flock("rehearse", str(file), cwd=root)
    assert done.returncode == 1
    assert "bad.yaml:2: events[0].kind: unknown event 'kil_server' -> did you mean 'kill_server'?" in said(done)
    change_settings(root, slurm={"time": "00:05:00"})
    done = flock("rehearse", "calm", cwd=root)
    assert done.returncode == 1
    assert "this scenario could never finish: a job's time limit is 5 min, " in said(done)
    assert "loading a judge takes " in said(done)  # how long depends on how busy this machine is
    assert not (root / ".flock-hpc" / "rehearsals").exists()


def test_ctrl_c_ends_all_jobs_and_leaves_nothing(root: Path) -> None:
    process = subprocess.Popen(command("rehearse", "calm"), cwd=root, env=environment(), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        eventually(lambda: any("run-batch" in one.cmdline() for one in processes_of(root).values()), "a job runs")
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 130, out
    finally:
        process.kill()
    assert_nothing_runs(root)
    assert not (root / ".flock-hpc").exists()


def test_a_killed_rehearsal_ends_its_jobs_and_is_swept_by_the_next(root: Path) -> None:
    process = subprocess.Popen(command("rehearse", "calm"), cwd=root, env=environment(), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    eventually(lambda: any("run-batch" in one.cmdline() for one in processes_of(root).values()), "a job runs")
    process.kill()
    process.wait()
    assert_nothing_runs(root)
    assert len(list((root / ".flock-hpc" / "rehearsals").iterdir())) == 1
    rehearse(root, "", "--models", EXAMPLES[0], "--limit-questions", "3")
    assert not (root / ".flock-hpc").exists()


# --- the local executor by itself ----------------------------------------------------------------------------
JOB = """#!/bin/bash
#SBATCH --output={folder}/%j.out
#SBATCH --error={folder}/%j.err
#SBATCH --time=00:00:03
#SBATCH --signal=B:USR2@2
trap 'echo told >>{folder}/said' USR2
trap 'echo ended >>{folder}/said; exit 0' TERM
echo "start ${{SLURM_RESTART_COUNT:-0}} on $FLOCK_HPC_NODE" >>{folder}/said
{extra}
while :; do sleep 0.1; done
"""


def test_the_local_executor_keeps_to_time_limits_and_signals(root: Path) -> None:
    script = root / "job.sh"
    script.write_text(JOB.format(folder=root, extra=""))
    queue = LocalQueue(root / ".flock-hpc" / "local")
    cluster = LocalCluster(queue.folder, root)
    job = cluster.submit(script, "job", [], None)
    eventually(lambda: cluster.look([job])[job].state.ended, "the job ends at its limit")
    assert (root / "said").read_text().split("\n")[1:3] == ["told", "ended"]
    assert cluster.look([job])[job].state.value == "TIMEOUT"
    assert "DUE TO TIME LIMIT" in (root / f"{job}.err").read_text()


def test_the_local_executor_starts_a_job_again_that_asks_for_it(root: Path) -> None:
    script, queue = root / "job.sh", LocalQueue(root / ".flock-hpc" / "local")
    ask = f"[[ -n ${{SLURM_RESTART_COUNT:-}} ]] && exit 0; touch {queue.folder}/$FLOCK_HPC_JOB.requeue; exit 7"
    script.write_text(JOB.format(folder=root, extra=ask))
    cluster, began = LocalCluster(queue.folder, root), time.time()
    job = cluster.submit(script, "job", [], None)
    eventually(lambda: cluster.look([job])[job].state.ended, "the job ends")
    assert cluster.look([job])[job].state.value == "COMPLETED"
    lines = (root / "said").read_text().split("\n")
    assert [line.split()[:2] for line in lines if line] == [["start", "0"], ["start", "1"]]
    (record,) = queue.jobs()
    assert record["restart"] == 1
    assert record["begin"] >= began
    assert [start["exit"] for start in record["starts"]] == [7, 0]
    assert not queue.requeue_file(job).exists()
