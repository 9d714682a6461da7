"""A campaign goes through an archive into another folder and counts the same there; files are as open as the umask."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import (
    EXAMPLES,
    command,
    environment,
    flock,
    games_of,
    judge_now,
    make_workspace,
    repeated,
    said,
    verdicts_of,
)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign that was judged to its end; nobody changes it."""
    root = make_workspace(tmp_path_factory.mktemp("judged") / "campaign", questions=4,
                          judge={"rehearsal": {"no_label": 0.1}})
    judge_now(root)
    return root


def counted(root: Path) -> tuple[dict[str, int], list[tuple[Any, ...]]]:
    """Totals and each model's counts, as the monitor gives them."""
    picture = json.loads(flock("monitor", "--json", cwd=root).stdout)
    keys = ("model", "state", "answers", "questions", "games", "wanted", "due", "nulls")
    return picture["totals"], [tuple(model[key] for key in keys) for model in picture["models"]]


def test_a_campaign_counts_the_same_after_export_and_import(judged: Path, tmp_path: Path) -> None:
    archive, new = tmp_path / "c.tar.gz", tmp_path / "new"
    done = flock("export", str(archive), cwd=judged)
    assert done.returncode == 0 and "Questions and answers are not in it" in done.stdout
    new.mkdir()
    bench = Path("arena-hard-auto/data/arena-hard-v2.0")
    shutil.copytree(judged / bench / "model_answer", new / bench / "model_answer")
    shutil.copy(judged / bench / "question.jsonl", new / bench / "question.jsonl")
    done = flock("import", str(archive), cwd=new)
    assert done.returncode == 0, said(done)
    assert counted(new) == counted(judged)
    assert "Nothing to do" in said(flock("judge", "--executor", "local", cwd=new))
    assert "derived anew" not in said(flock("judge", "--executor", "local", cwd=new))
    assert games_of(new, EXAMPLES) == games_of(judged, EXAMPLES)
    assert not repeated(verdicts_of(new, EXAMPLES))


def test_a_half_judged_campaign_goes_on_in_the_new_place(tmp_path: Path) -> None:
    old = make_workspace(tmp_path / "old", questions=4)
    judge_now(old, "--models", EXAMPLES[0])
    archive = tmp_path / "c.tar.gz"
    assert flock("export", str(archive), "--with-answers", cwd=old).returncode == 0
    new = tmp_path / "new"
    assert flock("import", str(archive), str(new), cwd=tmp_path).returncode == 0
    judge_now(new)
    assert flock("import", str(archive), str(new), cwd=tmp_path).returncode == 0
    totals, _ = counted(new)
    assert (totals["games"], totals["due"]) == (24, 0)
    assert len(games_of(new, EXAMPLES)) == 24 and not repeated(verdicts_of(new, EXAMPLES))
    records = [record for record in verdicts_of(new, EXAMPLES) if record[0] == EXAMPLES[0]]
    assert records == verdicts_of(old, EXAMPLES[:1])


def test_an_archive_made_while_jobs_write_is_whole_and_can_be_gone_on_with(tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "w", questions=12, judge={"rehearsal": {"latency": 0.2}, "concurrency": 2})
    with subprocess.Popen(command("judge", "--submit", "--wait", "--executor", "local"), cwd=root,
                          env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        archive, number = tmp_path / "c.tar.gz", 0
        while job.poll() is None:
            number += 1
            archive = tmp_path / f"c{number}.tar.gz"
            done = flock("export", str(archive), "--with-answers", cwd=root)
            assert done.returncode == 0, said(done)
            if "wait or run" in done.stderr and (root / ".flock-hpc/journal").is_dir() and number > 2:
                break
        flock("cancel", cwd=root)
        job.wait(60)
    new = tmp_path / "new"
    done = flock("import", str(archive), str(new), cwd=tmp_path)
    assert done.returncode == 0, said(done)
    judge_now(new)
    assert len(games_of(new, EXAMPLES)) == 72 and not repeated(verdicts_of(new, EXAMPLES))


def test_a_damaged_archive_says_so_and_makes_nothing(judged: Path, tmp_path: Path) -> None:
    flock("export", str(tmp_path / "c.tar.gz"), cwd=judged)
    (tmp_path / "cut.tar.gz").write_bytes((tmp_path / "c.tar.gz").read_bytes()[:3000])
    done = flock("import", str(tmp_path / "cut.tar.gz"), str(tmp_path / "new"), cwd=tmp_path)
    assert done.returncode == 1 and "cut off or damaged" in said(done) and "nothing was changed" in said(done)
    assert not (tmp_path / "new").exists()


def test_a_real_campaign_s_bundle_has_no_judgment(judged: Path, tmp_path: Path) -> None:
    done = flock("bundle", str(tmp_path / "b.tar.gz"), cwd=judged, env={"HF_TOKEN": "hf_Zz9Zz9Zz9Zz9Zz9Zz9"})
    assert done.returncode == 0 and "Look through it before you send it" in done.stdout
    with tarfile.open(tmp_path / "b.tar.gz") as tar:
        names = tar.getnames()
        whole = b"".join((file.read() if (file := tar.extractfile(name)) else b"") for name in names)
    for kind in ("runs/", "plans/", "submissions/", "logs/", "scripts/", "configs/", "monitor.json", "doctor.json"):
        assert any(f"bundle/{kind}" in name for name in names), kind
    assert b"only hashed" not in whole and b"hf_Zz9" not in whole
    assert b"could not be made" not in whole


def test_the_doctor_s_job_runs_here_too(judged: Path) -> None:
    done = flock("doctor", "--job", "--executor", "local", "--json", cwd=judged)
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["ok"], done.stdout
    lines = {line["subject"]: line["mark"] for line in found["job"]}
    assert lines["a request"] == lines["Unix socket"] == lines["folder: records"] == lines["offline"] == "ok"


@pytest.mark.parametrize(("mask", "files", "folders"), [(0o002, 0o664, 0o775), (0o022, 0o644, 0o755)])
def test_files_are_as_open_as_the_umask_says(tmp_path: Path, mask: int, files: int, folders: int) -> None:
    root = make_workspace(tmp_path / "w", questions=2)
    before = set(root.rglob("*"))
    (root / ".flock-hpc").mkdir()
    shell = f"umask {mask:03o}; {' '.join(command())}"
    for line in ("judge --submit --wait --executor local", "doctor --job --executor local", "monitor", "cancel",
                 "export c.tar.gz", "bundle b.tar.gz", "import c.tar.gz imported"):
        subprocess.run(["bash", "-c", f"{shell} {line}"], cwd=root, env=environment(), check=True, capture_output=True)
    wrong = []
    for path in set(root.rglob("*")) - before - {root / ".flock-hpc"}:
        mode, plain = stat.S_IMODE(path.lstat().st_mode), path.is_file()
        if mode & ~0o111 & 0o777 != (files if plain else folders & ~0o111) or (not plain and mode & 0o777 != folders):
            wrong.append(f"{mode:o} {path.relative_to(root)}")
    assert not wrong, "\n".join(sorted(wrong))


def test_a_key_is_never_open_to_others(tmp_path: Path) -> None:
    from automate.campaign.judging import keep_key
    from automate.settings import Judge

    judge = Judge(kind="openai", base_url="https://x/v1", api_key_env="SOME_KEY")
    os.environ["SOME_KEY"] = "kept-secret"
    old = os.umask(0o002)
    try:
        keep_key(judge, tmp_path / "secrets")
    finally:
        os.umask(old)
        os.environ.pop("SOME_KEY", None)
    kept = next(path for path in (tmp_path / "secrets").rglob("SOME_KEY"))
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
