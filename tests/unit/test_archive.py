"""Archives: what is in them, what is refused, and what becomes of each file in a workspace that is there."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson
import pytest

from automate.campaign.keeping.archive import FORMAT, HEADER, MANIFEST, allowed, pack_workspace
from automate.campaign.keeping.restore import restore
from automate.cluster.submit import SubmissionBook
from automate.errors import ConfigError, DataError, FlockError, StorageError
from automate.workspace import Workspace, open_workspace

BENCH = "arena-hard-v2.0"
JUDGE = "judge-rehearsal"
SETTINGS = "cluster: local\nbaseline: base\njudge: {kind: rehearsal, name: judge-rehearsal}\n"
JOURNAL = f".flock-hpc/journal/{BENCH}/{JUDGE}/base/model-a/r1.jsonl"
ROWS = f"arena-hard-auto/data/{BENCH}/model_judgment/{JUDGE}/model-a.jsonl"
SUBMISSION = {"id": "s1", "plan": "20260101_000000", "name": "judge-array-abcdef", "script": "/old/x.sh",
              "executor": "local", "tasks": {"1": 1}, "array": True, "parallel": None, "after": None, "intended": 1.0,
              "job": "local-7", "refused": None}
PLAN: dict[str, object] = {"id": "20260101_000000", "tag": "abcdef", "baseline": "base", "limit_questions": None,
        "batches": [{"number": 1, "models": ["model-a"], "games": 4}],
        "parts": [{"part": 1, "offset": 0, "numbers": [1]}], "settings": {}}


def row(uid: str, text: str = "fine") -> str:
    return json.dumps({"uid": uid, "games": [{"score": "A>B", "judgment": {"answer": text}}] * 2}) + "\n"


def campaign(root: Path, **more: str) -> Workspace:
    """A workspace with one file of each kind; `more` adds or replaces files."""
    texts = {
        "flock-hpc.yaml": SETTINGS, "arena_hard_models_to_test.txt": "model-a\n",
        JOURNAL: '{"key": "1"}\n{"key": "2"}\n',
        ROWS: row("q1"), ROWS.replace("model-a", "compared_with_x/model-a"): row("q2"),
        ".flock-hpc/runs/r1.json": '{"job": "local-7_1", "status": 0}',
        ".flock-hpc/plans/20260101_000000.json": json.dumps(PLAN),
        ".flock-hpc/submissions/s1.json": json.dumps(SUBMISSION),
        ".flock-hpc/secrets/KEY": "do-not-pack-me", ".flock-hpc/claims/x/y/g1.json": "{}",
        ".flock-hpc/local/local-7.json": "{}", "profiles/mine.yaml": "batch_size: 3\n", "templates/x.sh.j2": "#\n",
        ".flock-hpc/superseded/t/model-a.jsonl": row("q0"),
        f"arena-hard-auto/data/{BENCH}/question.jsonl": '{"uid": "q1", "prompt": "?"}\n',
        f"arena-hard-auto/data/{BENCH}/model_answer/model-a.jsonl": '{"uid": "q1"}\n',
        "arena-hard-auto/config/api_config.yaml": "gpt:\n  api_key: sk-abcdefgh12345678\n", **more,
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return open_workspace(root)


def files(root: Path) -> dict[str, bytes]:
    """Every file below a folder, but claims and Slurm's last answer."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*")
            if path.is_file() and not {"claims", "queue"} & set(path.parts)}


def packed(tmp_path: Path, workspace: Workspace, *, answers: bool = False) -> Path:
    target = tmp_path / "c.tar.gz"
    pack_workspace(workspace, target, answers=answers)
    return target


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {member.name: (tar.extractfile(member) or io.BytesIO()).read() for member in tar}


def test_an_archive_holds_what_counts_and_no_secret(tmp_path: Path) -> None:
    found = members(packed(tmp_path, campaign(tmp_path / "a"), answers=True))
    names = set(found)
    assert {"settings/flock-hpc.yaml", "settings/models.txt", f"journal/{BENCH}/{JUDGE}/base/model-a/r1.jsonl",
            f"checkout/data/{BENCH}/model_judgment/{JUDGE}/compared_with_x/model-a.jsonl", "runs/r1.json",
            "profiles/mine.yaml", "templates/x.sh.j2", "superseded/t/model-a.jsonl",
            f"checkout/data/{BENCH}/question.jsonl"} <= names
    assert not any("do-not-pack-me" in data.decode() or "sk-abcdefgh" in data.decode() for data in found.values())
    assert not any(name.startswith(("claims", "secrets", "local")) for name in names)
    manifest = json.loads(found[MANIFEST])["files"]
    assert set(manifest) == names - {HEADER, MANIFEST}
    for name, entry in manifest.items():
        assert entry == {"bytes": len(found[name]), "sha256": hashlib.sha256(found[name]).hexdigest()}


def test_answers_are_in_it_only_where_asked_for(tmp_path: Path) -> None:
    assert not any("model_answer" in name or "question" in name
                   for name in members(packed(tmp_path, campaign(tmp_path / "a"))))


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    workspace = campaign(tmp_path / "a", **{JOURNAL: '{"key": "1"}\n{"key": "2", "te'})
    found = members(packed(tmp_path, workspace))
    assert found[f"journal/{BENCH}/{JUDGE}/base/model-a/r1.jsonl"] == b'{"key": "1"}\n'


def test_the_archive_has_its_name_only_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = campaign(tmp_path / "a")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StorageError, match="No space"):
        packed(tmp_path, workspace)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("name", ["x.zip", "x.tar", "x"])
def test_a_name_that_says_no_format_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"tar\.gz"):
        pack_workspace(campaign(tmp_path / "a"), tmp_path / name)
    assert not (tmp_path / name).exists()


def test_zstandard_does_the_same(tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    workspace = campaign(tmp_path / "a")
    pack_workspace(workspace, tmp_path / "c.tar.zst")
    restore(tmp_path / "c.tar.zst", tmp_path / "b")
    assert (tmp_path / "b" / JOURNAL).read_text() == (tmp_path / "a" / JOURNAL).read_text()
    (tmp_path / "cut.tar.zst").write_bytes((tmp_path / "c.tar.zst").read_bytes()[:-100])
    with pytest.raises(DataError, match="cut off"):
        restore(tmp_path / "cut.tar.zst", tmp_path / "d")


# Into a new workspace


def test_a_new_workspace_has_the_same_records(tmp_path: Path) -> None:
    workspace = campaign(tmp_path / "a")
    done = restore(packed(tmp_path, workspace), tmp_path / "b")
    old, new = files(tmp_path / "a"), files(tmp_path / "b")
    for name in (JOURNAL, ROWS, "flock-hpc.yaml", "profiles/mine.yaml", ".flock-hpc/runs/r1.json"):
        assert new[name] == old[name]
    assert done.new == 11 and not done.same + done.merged + done.kept
    assert not [name for name in new if "secrets" in name or "import" in name]


def test_jobs_of_the_old_place_are_not_taken_for_jobs_of_the_new_one(tmp_path: Path) -> None:
    restore(packed(tmp_path, campaign(tmp_path / "a")), tmp_path / "b")
    workspace = open_workspace(tmp_path / "b")
    submission = SubmissionBook(workspace.submissions).all()[0]
    tag = json.loads((workspace.plans / "20260101_000000.json").read_text())["tag"]
    assert tag != "abcdef" and submission.name == f"judge-array-{tag}"
    ended = json.loads((workspace.submissions / "s1.ended").read_text())["jobs"]
    assert [(job["job"], job["state"], job["gone"]) for job in ended] == [("local-7_1", "UNKNOWN", True)]
    assert (workspace.local_queue / "7.id").exists()


def test_an_open_submission_is_not_looked_for_in_the_new_place(tmp_path: Path) -> None:
    text = json.dumps({**SUBMISSION, "job": None})
    restore(packed(tmp_path, campaign(tmp_path / "a", **{".flock-hpc/submissions/s1.json": text})), tmp_path / "b")
    assert SubmissionBook(open_workspace(tmp_path / "b").submissions).all()[0].refused


def test_importing_twice_changes_nothing(tmp_path: Path) -> None:
    archive = packed(tmp_path, campaign(tmp_path / "a"))
    restore(archive, tmp_path / "b")
    before = files(tmp_path / "b")
    done = restore(archive, tmp_path / "b")
    after = files(tmp_path / "b")
    assert after == before
    assert done.new == 0 and done.merged == 0


def test_a_checkout_outside_that_has_gone_gets_a_place_inside(tmp_path: Path) -> None:
    outside = tmp_path / "shared"
    workspace = campaign(tmp_path / "a")
    (tmp_path / "a" / "arena-hard-auto").rename(outside)
    (tmp_path / "a" / "flock-hpc.yaml").write_text(f"arena_hard: {outside}\n{SETTINGS}")
    workspace = open_workspace(tmp_path / "a")
    archive = packed(tmp_path, workspace)
    done = restore(archive, tmp_path / "kept")
    assert open_workspace(tmp_path / "kept").arena_hard == outside and "nothing was written to it" in done.notes[0]
    assert not (tmp_path / "kept" / "arena-hard-auto").exists()
    outside.rename(tmp_path / "gone")
    restore(archive, tmp_path / "b")
    assert open_workspace(tmp_path / "b").arena_hard == tmp_path / "b" / "arena-hard-auto"
    assert (tmp_path / "b" / ROWS).is_file()


# Into a workspace that is there


def test_records_of_both_places_stand_side_by_side(tmp_path: Path) -> None:
    archive = packed(tmp_path, campaign(tmp_path / "a", **{JOURNAL.replace("r1", "r2"): '{"key": "3"}\n'}))
    other = SETTINGS + "batch_size: 7\n"
    campaign(tmp_path / "b", **{"flock-hpc.yaml": other, ROWS: row("q1", "mine") + row("q9")})
    done = restore(archive, tmp_path / "b")
    assert (tmp_path / "b" / JOURNAL.replace("r1", "r2")).is_file()
    assert (tmp_path / "b" / "flock-hpc.yaml").read_text() == other
    assert (tmp_path / "b" / ROWS).read_text() == row("q1", "mine") + row("q9")
    assert any("flock-hpc.yaml: stays as it is" in note for note in done.notes)


def test_judgments_of_other_questions_are_added(tmp_path: Path) -> None:
    archive = packed(tmp_path, campaign(tmp_path / "a", **{ROWS: row("q1") + row("q2")}))
    campaign(tmp_path / "b", **{ROWS: row("q1", "mine")})
    restore(archive, tmp_path / "b")
    assert (tmp_path / "b" / ROWS).read_text() == row("q1", "mine") + row("q2")


@pytest.mark.parametrize(("theirs", "ours", "after"), [
    ('{"key": "1"}\n', '{"key": "1"}\n{"key": "2"}\n', '{"key": "1"}\n{"key": "2"}\n'),
    ('{"key": "1"}\n{"key": "2"}\n', '{"key": "1"}\n', '{"key": "1"}\n{"key": "2"}\n')])
def test_a_record_file_that_has_grown_since_is_the_same_one(tmp_path: Path, theirs: str, ours: str, after: str) -> None:
    archive = packed(tmp_path, campaign(tmp_path / "a", **{JOURNAL: theirs}))
    campaign(tmp_path / "b", **{JOURNAL: ours})
    restore(archive, tmp_path / "b")
    assert (tmp_path / "b" / JOURNAL).read_text() == after


@pytest.mark.parametrize(("name", "options"), [
    (JOURNAL, {}), (f"arena-hard-auto/data/{BENCH}/model_answer/model-a.jsonl", {"answers": True})])
def test_records_and_answers_at_odds_are_named_and_nothing_changes(tmp_path: Path, name: str,
                                                                  options: Mapping[str, bool]) -> None:
    archive = packed(tmp_path, campaign(tmp_path / "a", **{JOURNAL.replace("r1", "r2"): "{}\n"}), **options)
    campaign(tmp_path / "b", **{name: '{"uid": "another"}\n'})
    before = files(tmp_path / "b")
    with pytest.raises(DataError, match="other contents") as told:
        restore(archive, tmp_path / "b")
    assert name in str(told.value)
    assert files(tmp_path / "b") == before


def test_a_job_id_that_is_taken_here_is_not_mixed_up(tmp_path: Path) -> None:
    archive = packed(tmp_path, campaign(tmp_path / "a"))
    campaign(tmp_path / "b", **{".flock-hpc/submissions/s1.json": json.dumps({**SUBMISSION, "id": "mine"})})
    (tmp_path / "b/.flock-hpc/submissions/s1.json").rename(tmp_path / "b/.flock-hpc/submissions/mine.json")
    (tmp_path / "b/.flock-hpc/runs/r1.json").unlink()
    done = restore(archive, tmp_path / "b")
    workspace = open_workspace(tmp_path / "b")
    assert [sub.id for sub in SubmissionBook(workspace.submissions).all()] == ["mine"]
    assert not (workspace.runs / "r1.json").exists()
    assert any("another one here" in note for note in done.notes)


# Archives that nobody should trust

Change = Callable[[dict[str, bytes]], None]


def rewritten(archive: Path, target: Path, change: Change | None = None,
              add: Callable[[tarfile.TarFile], None] | None = None, *, right: bool = False) -> Path:
    """The archive with other contents; with `right` its manifest is made to fit."""
    found = members(archive)
    if change is not None:
        change(found)
    if right:
        manifest = json.loads(found[MANIFEST])
        manifest["files"] = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
                             for name, data in found.items() if name not in (HEADER, MANIFEST)}
        found[MANIFEST] = orjson.dumps(manifest)
    with tarfile.open(target, "w:gz") as tar:
        for name, data in found.items():
            if name == MANIFEST and add is not None:
                add(tar)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return target


def refused(tmp_path: Path, archive: Path, words: str) -> None:
    """The archive is refused with these words, and leaves nothing behind."""
    before = files(tmp_path)
    for root in (tmp_path / "new" / "place", tmp_path / "there"):
        with pytest.raises(FlockError, match=words):
            restore(archive, root)
    assert not (tmp_path / "new" / "place").exists()
    assert files(tmp_path) == before


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    campaign(tmp_path / "there")
    return packed(tmp_path, campaign(tmp_path / "a"))


@pytest.mark.parametrize("keep", [0, 1, 10, 300, -1200, -400])
def test_a_cut_archive_changes_nothing(tmp_path: Path, archive: Path, keep: int) -> None:
    (tmp_path / "cut.tar.gz").write_bytes(archive.read_bytes()[:keep])
    refused(tmp_path, tmp_path / "cut.tar.gz", "cut off|not an archive|damaged")


def test_a_changed_byte_changes_nothing(tmp_path: Path, archive: Path) -> None:
    bad = rewritten(archive, tmp_path / "bad.tar.gz",
                    lambda found: found.update({"runs/r1.json": found["runs/r1.json"].replace(b"0", b"1")}))
    refused(tmp_path, bad, "SHA-256")


@pytest.mark.parametrize("change", [lambda found: found.pop("runs/r1.json"),
                                    lambda found: found.update({"runs/more.json": b"{}"})])
def test_a_file_too_few_or_too_many_changes_nothing(tmp_path: Path, archive: Path, change: Change) -> None:
    def last(found: dict[str, bytes]) -> None:
        change(found)
        found[MANIFEST] = found.pop(MANIFEST)

    refused(tmp_path, rewritten(archive, tmp_path / "bad.tar.gz", last), "not those of its manifest")


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "runs/../../evil", "runs//x", "secrets/KEY",
                                  "claims/x/g1.json",
                                  "checkout/gen_judgment.py",
                                  "checkout/data/b/model_answer/../x.jsonl", "runs/.", "evil",
                                  "checkout/utils/evil.py", "journal", "runs/a\\b"])
def test_names_that_do_not_belong_there_are_refused(tmp_path: Path, archive: Path, name: str) -> None:
    def add(found: dict[str, bytes]) -> None:
        found[name] = b"x"
        found[MANIFEST] = found.pop(MANIFEST)

    assert not allowed(name)
    refused(tmp_path, rewritten(archive, tmp_path / "bad.tar.gz", add, right=True), "doesn't belong there")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_folders_and_devices_are_refused(tmp_path: Path, archive: Path, kind: bytes) -> None:
    def add(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo("runs/x.json")
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)

    refused(tmp_path, rewritten(archive, tmp_path / "bad.tar.gz", add=add), "no plain file")


def test_a_file_that_is_there_twice_is_refused(tmp_path: Path, archive: Path) -> None:
    def add(tar: tarfile.TarFile) -> None:
        tar.addfile(tarfile.TarInfo("runs/r1.json"), io.BytesIO())

    refused(tmp_path, rewritten(archive, tmp_path / "bad.tar.gz", add=add), "twice")


def test_a_file_larger_than_the_disk_is_refused(tmp_path: Path, archive: Path) -> None:
    info = tarfile.TarInfo("runs/huge.json")
    info.size = 1 << 60
    header = tarfile.TarInfo(HEADER)
    data = members(archive)[HEADER]
    header.size = len(data)
    (tmp_path / "bad.tar.gz").write_bytes(gzip.compress(
        header.tobuf() + data + b"\0" * (-len(data) % 512) + info.tobuf() + b"\0" * 1024))
    refused(tmp_path, tmp_path / "bad.tar.gz", "no room")


def test_another_program_s_archive_is_refused(tmp_path: Path, archive: Path) -> None:
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("hello.txt"), io.BytesIO())
    refused(tmp_path, tmp_path / "bad.tar.gz", "not an archive of flock-hpc")


def test_a_newer_format_is_refused(tmp_path: Path, archive: Path) -> None:
    bad = rewritten(archive, tmp_path / "bad.tar.gz", lambda found: found.update(
        {HEADER: found[HEADER].replace(f'"format":{FORMAT}'.encode(), b'"format":99')}))
    refused(tmp_path, bad, "newer")


def test_settings_of_an_archive_can_t_send_files_elsewhere(tmp_path: Path, archive: Path) -> None:
    bad = rewritten(archive, tmp_path / "bad.tar.gz", lambda found: found.update({HEADER: found[HEADER].replace(
        b'"arena_hard":"arena-hard-auto"', b'"arena_hard":"../../elsewhere"')}), right=True)
    restore(bad, tmp_path / "in" / "b")
    assert not list(tmp_path.rglob("elsewhere")) and (tmp_path / "in" / "b" / ROWS).is_file()


def test_files_that_seem_to_hold_a_secret_are_named_and_stay_as_they_are(tmp_path: Path) -> None:
    text = ('cluster: local\nbaseline: base\njudge:\n  kind: rehearsal\n'
            '  environment: {setup: ["export HF_TOKEN=zebra99"]}\n')
    workspace = campaign(tmp_path / "a", **{"flock-hpc.yaml": text})
    done = pack_workspace(workspace, tmp_path / "c.tar.gz")
    assert done.suspects == ["settings/flock-hpc.yaml seems to hold a secret (line 5): whoever gets the archive gets "
                             "it; put it into a file that the setup reads"]
    assert members(tmp_path / "c.tar.gz")["settings/flock-hpc.yaml"].decode() == text
    assert not pack_workspace(campaign(tmp_path / "b"), tmp_path / "d.tar.gz").suspects


def test_a_repeated_import_accounts_for_every_file(tmp_path: Path) -> None:
    derived = str(Path(JOURNAL).with_name("derived.json"))
    archive = packed(tmp_path, campaign(tmp_path / "a", **{derived: "{}"}), answers=True)
    restore(archive, tmp_path / "new")
    count = len(json.loads(members(archive)[MANIFEST])["files"])
    again = restore(archive, tmp_path / "new")
    assert again.same == count - again.kept and again.new == again.merged == 0
    (tmp_path / "new" / derived).write_text("{ }")
    other = restore(archive, tmp_path / "new")
    assert (other.same, other.kept) == (again.same - 1, again.kept + 1)
