"""Flock validation in a storm, on a real Slurm: nothing lost, nothing reported twice, nobody blamed for the cluster."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.rigs.slurm import SlurmRig
from tests.rigs.validation_storm import ValidationStorm


def test_every_assignment_ends_as_it_must(slurm: SlurmRig, tmp_path: Path) -> None:
    storm = ValidationStorm(slurm, tmp_path / "w", assignments=40, seed=4)
    states, wrong = storm.blow(kills=16, pause=(0.3, 1.5), limit=400)
    assert wrong == []
    counts = Counter(states.values())
    assert set(counts) <= {"submitted", "failed", "given_up"}
    assert counts["submitted"] >= 20
    assert storm.killed["loop"] >= 1
    assert storm.killed["module"] + storm.killed["array task"] >= 3
