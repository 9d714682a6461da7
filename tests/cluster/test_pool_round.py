"""A round of a pool's evaluation on a real Slurm: servers and engine as jobs, the engine requeued in the middle."""

from __future__ import annotations

from pathlib import Path

from automate.campaign.pools.evaluating import look
from automate.campaign.pools.jobs import submissions_of
from tests.e2e.pool_rig import Funded, assert_answered_once, until
from tests.rigs.slurm import SlurmRig


def test_a_round_on_slurm_survives_a_requeue_of_its_engine(slurm: SlurmRig, tmp_path: Path) -> None:
    made = Funded(tmp_path / "w", 40, executor="slurm", rehearsal={"latency": 0.5, "kv_tokens": 1000})
    try:
        view = made.evaluate(wait=False).rounds[0]
        assert view.job is not None
        assert not view.job.startswith("local-")
        until(lambda: len(made.records()) >= 5, "some answers")
        slurm.run("scontrol", "requeue", view.job)
        until(lambda: len(list(made.places.answers(view.name).glob("*.jsonl"))) == 2, "its second start")
        assert len(made.records()) < 80, "it was requeued in the middle"
        done = made.evaluate()
        assert done.done, made.said
        assert len(submissions_of(made.workspace, view.name)) == 1, "the same job went on"
        assert_answered_once(made, 40)
        assert look(made.workspace) == []
        until(made.fleets_over, "the fleet's end")
    finally:
        made.end()
