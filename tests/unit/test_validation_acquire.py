"""An assignment's files come to disk under its claim; what goes wrong lands where it belongs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from automate.errors import ClaimedError, ModuleEnvironmentError, StorageError
from automate.validation import acquire as acquiring
from automate.validation import ondisk, snapshots
from automate.validation.assignments import Assignment, State
from automate.validation.hub import Hub
from automate.validation.inner import files
from automate.validation.inner.files import Outcome, Result
from automate.validation.spool import Spool, out_of_space
from automate.validation.standin.hub import Fault, HubStandIn, Repository
from tests.unit.validation_files_rig import NOW, ROWS, Reply, Store, admit, make_places, serve

CONFIG = b'{"model_type": "llama"}'
BASE = {"config.json": CONFIG, "model.safetensors": b"b" * 5000, "tokenizer.json": b"{}"}
ADAPTER = {"adapter_config.json": b'{"base_model_name_or_path": "Qwen/base"}', "adapter_model.safetensors": b"a" * 2000,
           "tokenizer_config.json": b'{"auto_map": {"AutoTokenizer": "evil.T"}}'}
LORA = {"hg_repo_id": "org/adapter", "revision": "main", "base_model": "qwen1.5"}


class Rig:
    """A spool, a hub and a store; `go()` acquires one assignment."""

    def __init__(self, root: Path, hub: HubStandIn, store: Store) -> None:
        self.root, self.hub, self.store = root, hub, store
        self.places = make_places(root)
        self.spool = Spool(self.places)
        self.configure({"supported_base_models": ["Qwen/base", "Qwen/other"], "lora_only": False})

    def configure(self, config: dict[str, object]) -> None:
        self.places.configs.mkdir(parents=True, exist_ok=True)
        (self.places.configs / "lora.json").write_text(json.dumps(config))

    def set(self, **values: Any) -> None:
        self.places = make_places(self.root, **values)
        self.spool = Spool(self.places)

    def admit(self, number: str = "7", submission: dict[str, object] | None = None, *, data: bool = True,
              module: str = "lora") -> Assignment:
        url = {"validation_set_url": f"{self.store.url}/set.jsonl?X-Amz-Signature=abcdef012345"} if data else {}
        return admit(self.spool, number, module=module, submission=LORA if submission is None else submission, data=url)

    def go(self, assignment: Assignment, check: Callable[[Assignment], Result | None] | None = None,
           stop: Callable[[], bool] = lambda: False) -> Assignment:
        settings = self.places.settings.model_copy(update={"hub_url": self.hub.url})
        hub = Hub(settings, None, sleep=lambda seconds: None)
        with requests.Session() as session:
            return acquiring.acquire(assignment, spool=self.spool, places=self.places, hub=hub, session=session,
                                     check=check, clock=lambda: NOW, stop=stop)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    repositories = {"org/adapter": Repository(ADAPTER), "Qwen/base": Repository(BASE), "org/model": Repository(BASE)}
    with HubStandIn(repositories) as hub, serve() as store:
        yield Rig(tmp_path / "workspace", hub, store)


def stored(rig: Rig, number: str = "7") -> Assignment:
    found = rig.spool.find(number)
    assert found is not None
    return found


def test_an_adapter_its_base_and_its_set_lie_on_disk(rig: Rig) -> None:
    found = rig.go(rig.admit())
    assert found.ready and found == stored(rig)
    assert found.data and found.model and found.base
    assert (found.folder / found.data.path).read_bytes() == ROWS
    assert (found.model.repo, found.model.revision) == ("org/adapter", "main")
    assert found.model.commit == found.model_commit == rig.hub.repositories["org/adapter"].head
    assert found.base.commit == found.base_commit == rig.hub.repositories["Qwen/base"].head
    assert (Path(found.base.path) / "model.safetensors").read_bytes() == BASE["model.safetensors"]
    assert {path.name for path in Path(found.model.path).iterdir()} == set(ADAPTER)
    assert Path(found.model.path).is_absolute() and Path(found.base.path).is_absolute()


def test_a_second_call_fetches_nothing(rig: Rig) -> None:
    first = rig.go(rig.admit())
    calls = len(rig.hub.calls)
    assert rig.go(first) == first
    assert (len(rig.hub.calls), len(rig.store.asked)) == (calls, 1)


def test_two_assignments_share_a_base(rig: Rig) -> None:
    rig.hub.repositories["org/other"] = Repository({**ADAPTER, "adapter_model.safetensors": b"other" * 500})
    one, two = rig.go(rig.admit("7")), rig.go(rig.admit("8", {**LORA, "hg_repo_id": "org/other"}))
    assert one.base == two.base and one.model != two.model
    assert len(rig.hub.asked("GET", "/Qwen/base/resolve/")) == 3


def test_a_full_model_and_a_missing_revision(rig: Rig) -> None:
    found = rig.go(rig.admit(submission={"hg_repo_id": "org/model"}))
    assert found.ready and found.model and found.base is None
    assert found.model.revision == "main"


def test_a_policy_is_its_files_only(rig: Rig) -> None:
    content = {"p.onnx": b"o", "p.onnx.data": b"d", "old.onnx": b"x", "a.py": b""}
    rig.hub.repositories["org/policy"] = Repository(content)
    found = rig.go(rig.admit(submission={"hg_repo_id": "org/policy", "model_filename": "p.onnx"}, module="rl"))
    assert found.model
    assert {path.name for path in Path(found.model.path).iterdir()} == {"p.onnx", "p.onnx.data"}


def test_an_interrupted_fetch_goes_on_at_the_same_commit(rig: Rig) -> None:
    head = rig.hub.repositories["org/adapter"].head
    rig.hub.faults.append(Fault("adapter_model", times=99, status=500))
    waiting = rig.go(rig.admit())
    assert (waiting.state, waiting.cause, waiting.ready) == (State.FETCHED, "hub", False)
    assert waiting.model_commit == head and waiting.data
    rig.hub.faults.clear()
    rig.hub.repositories["org/adapter"] = Repository({**ADAPTER, "adapter_model.safetensors": b"changed" * 300},
                                                     older={head: ADAPTER})
    found = rig.go(waiting)
    assert found.ready and found.problem is None and found.cause is None
    assert found.model and found.model.commit == head
    assert (Path(found.model.path) / "adapter_model.safetensors").read_bytes() == ADAPTER["adapter_model.safetensors"]
    assert len(rig.store.asked) == 1, "the set was there already"


def test_a_base_stays_at_the_commit_that_was_pinned(rig: Rig) -> None:
    head = rig.hub.repositories["Qwen/base"].head
    rig.hub.faults.append(Fault("base/resolve/.*/model.safetensors", times=99, status=500))
    waiting = rig.go(rig.admit())
    assert waiting.base_commit == head and waiting.base is None
    rig.hub.faults.clear()
    rig.hub.repositories["Qwen/base"] = Repository({**BASE, "tokenizer.json": b"{ }"}, older={head: BASE})
    found = rig.go(waiting)
    assert found.base and found.base.commit == head


def test_a_model_that_was_removed_meanwhile_is_fetched_again_at_its_commit(rig: Rig) -> None:
    import shutil

    found = rig.go(rig.admit())
    assert found.model
    shutil.rmtree(found.model.path)
    again = rig.go(found)
    assert again.model == found.model and snapshots.whole(Path(found.model.path))


def test_what_was_struck_off_comes_back_at_its_commit(rig: Rig) -> None:
    first = rig.go(rig.admit())
    assert first.data and first.model
    shutil.rmtree(first.model.path)
    (first.folder / first.data.path).write_bytes(b"spoilt")
    kept, gone = ondisk.checked(first)
    assert gone and (kept.data, kept.model, kept.base) == (None, None, None)
    with rig.spool.held("7"):
        rig.spool.save(replace(kept, cause="files-gone", attempts=1))
    again = rig.go(kept)
    assert again.ready and (again.problem, again.cause, again.attempts) == (None, None, 1)
    assert (again.model, again.base, again.data) == (first.model, first.base, first.data)
    assert ondisk.checked(again) == (again, "")


# --- the submission's own fault -------------------------------------------------------------------
@pytest.mark.parametrize(("repositories", "submission", "cause"), [
    ({}, {"hg_repo_id": "org/gone"}, "repository-gone"),
    ({}, {"hg_repo_id": "org/model", "revision": "0" * 40}, "revision-gone"),
    ({"org/bad": {**ADAPTER, "adapter_config.json": b"{"}}, {"hg_repo_id": "org/bad"}, "bad-adapter-config"),
    ({"org/bad": {**ADAPTER, "adapter_config.json": b'{"base_model_name_or_path": "/x/y"}'}}, {"hg_repo_id": "org/bad"},
     "bad-base"),
    ({"org/bad": {**ADAPTER, "adapter_config.json": b'{"base_model_name_or_path": "org/none"}'}},
     {"hg_repo_id": "org/bad"}, "unsupported-base")])
def test_the_submissions_own_fault_is_a_result(rig: Rig, repositories: dict[str, dict[str, bytes]],
                                               submission: dict[str, object], cause: str) -> None:
    rig.hub.repositories |= {name: Repository(content) for name, content in repositories.items()}
    found = rig.go(rig.admit(submission=submission))
    assert found.state is State.DONE and found == stored(rig)
    result = files.read_result(found.folder)
    assert result is not None
    assert (result.outcome, result.cause, result.assignment_id) == (Outcome.FAILED, cause, "7")
    assert found.history[-1].cause == cause


@pytest.mark.parametrize("module", ["rl", "mine"])
def test_a_policy_that_is_not_there_is_the_submissions_fault(rig: Rig, module: str) -> None:
    found = rig.go(rig.admit(submission={"hg_repo_id": "org/model", "model_filename": "../x.onnx"}, module=module))
    assert (found.state, found.history[-1].cause) == (State.DONE, "missing-model-file")


@pytest.mark.parametrize("module", ["lora", "llm_judge", "mine"])
@pytest.mark.parametrize("name", [None, "", 7, "x.bin"])
def test_a_file_name_that_says_nothing_is_left_aside(rig: Rig, module: str, name: object) -> None:
    if (module, name) == ("mine", "x.bin"):
        return
    repo = "org/adapter" if module != "llm_judge" else "org/model"
    found = rig.go(rig.admit(submission={**LORA, "hg_repo_id": repo, "model_filename": name}, module=module))
    assert found.ready and found.model and not found.result_file.exists()


@pytest.mark.parametrize("name", [None, "", 7])
def test_a_policy_without_a_name_is_left_to_its_module(rig: Rig, name: object) -> None:
    rig.hub.repositories["org/policy"] = Repository({"p.onnx": b"o"})
    found = rig.go(rig.admit(submission={"hg_repo_id": "org/policy", "model_filename": name}, module="rl"))
    assert found.ready and not found.result_file.exists()


def test_no_revision_is_the_default_one(rig: Rig) -> None:
    found = rig.go(rig.admit(submission={**LORA, "revision": None}))
    assert found.ready and found.model and found.model.revision == "main"


@pytest.mark.parametrize("text", ["{", "[]", '{"lora_only": "yes"}', '{"supported_base_models": "any"}'])
@pytest.mark.parametrize("place", ["lora.json", "tasks/1.json"])
def test_a_config_that_can_not_be_read_blames_nobody(rig: Rig, text: str, place: str) -> None:
    rig.configure({})
    (rig.places.configs / "tasks").mkdir()
    (rig.places.configs / place).write_text(text)
    whole = rig.go(rig.admit(submission={"hg_repo_id": "org/model"}))
    assert whole.ready and not whole.result_file.exists()
    rig.hub.repositories["org/bad"] = Repository({**ADAPTER, "adapter_config.json":
                                                  b'{"base_model_name_or_path": "org/none"}'})
    found = rig.go(rig.admit("8", {"hg_repo_id": "org/bad"}))
    assert (found.state, found.cause) == (State.GIVEN_UP, "base-gone") and not found.result_file.exists()


def test_an_address_of_a_private_network_is_for_a_person(rig: Rig) -> None:
    rig.store.url = "https://169.254.169.254"
    assert given_up(rig, rig.admit()) == "data-url"


def test_only_adapters_are_taken_where_the_config_says_so(rig: Rig) -> None:
    rig.configure({})
    found = rig.go(rig.admit(submission={"hg_repo_id": "org/model"}))
    assert (found.state, found.history[-1].cause) == (State.DONE, "missing-adapter")
    assert rig.hub.asked("GET", "model.safetensors") == []


def test_a_base_that_nobody_lists_may_be_missing(rig: Rig) -> None:
    rig.hub.repositories["org/bad"] = Repository({**ADAPTER, "adapter_config.json":
                                                  b'{"base_model_name_or_path": "org/none"}'})
    found = rig.go(rig.admit(submission={"hg_repo_id": "org/bad"}, module="mine"))
    assert (found.state, found.history[-1].cause) == (State.DONE, "missing-base")


def test_a_judge_scores_what_can_not_be_had(rig: Rig) -> None:
    found = rig.go(rig.admit(submission={"hg_repo_id": "org/gone"}, module="llm_judge"))
    result = files.read_result(found.folder)
    assert found.state is State.DONE and result is not None
    assert (result.outcome, result.payload, result.cause) == (Outcome.COMPLETED, {"score": -999.0}, "repository-gone")


# --- nobody's fault -------------------------------------------------------------------------------
@pytest.mark.parametrize(("status", "cause"), [(404, "hub-refused"), (429, "hub"), (500, "hub"), (503, "hub")])
def test_a_hub_in_trouble_leaves_it_where_it_is(rig: Rig, status: int, cause: str) -> None:
    rig.hub.faults.append(Fault("", times=999, status=status))
    found = rig.go(rig.admit())
    assert (found.state, found.cause) == (State.FETCHED, cause)
    assert not found.result_file.exists()
    events = len(found.history)
    for _ in range(5):
        found = rig.go(found)
    assert found.state is State.FETCHED
    assert len(found.history) == events, "the same trouble is not told twice"


def test_a_hub_that_refuses_for_hours_is_for_a_person(rig: Rig) -> None:
    rig.hub.faults.append(Fault("", times=999, status=404))
    found = rig.spool.save(replace(rig.admit(), fetched_at=NOW - 3601))
    assert [(found := rig.go(found)).state for _ in range(3)] == [State.FETCHED, State.FETCHED, State.GIVEN_UP]


@pytest.mark.parametrize(("reply", "cause"), [
    (Reply(403, b"Request has expired"), "url-expired"), (Reply(404), "data-url"), (Reply(body=b""), "data-empty")])
def test_a_set_that_can_not_be_had_is_for_a_person_in_the_end(rig: Rig, reply: Reply, cause: str) -> None:
    rig.store.replies = [reply]
    found = rig.admit()
    assert [(found := rig.go(found)).state for _ in range(3)] == [State.FETCHED, State.FETCHED, State.GIVEN_UP]
    assert (found.cause, found.fetch_tries, found == stored(rig)) == (cause, 0, True)
    assert found.problem and not found.result_file.exists()


def test_an_expired_address_waits_for_a_younger_one(rig: Rig) -> None:
    rig.store.replies = [Reply(403, b"Request has expired")]
    found = rig.go(rig.admit())
    assert (found.state, found.cause) == (State.FETCHED, "url-expired")
    assert "abcdef012345" not in (found.folder / files.ASSIGNMENT).read_text()
    assert rig.hub.calls == [], "no model is fetched for a set that is not there"
    reply = json.loads((found.folder / files.REPLY).read_bytes())
    reply["data"]["validation_set_url"] = f"{rig.store.url}/younger.jsonl"
    (found.folder / "reply-20260101T000000000Z-aa.json").write_text(json.dumps(reply))
    rig.store.replies = [Reply()]
    assert rig.go(found).ready
    assert rig.store.asked[-1]["path"] == "/younger.jsonl"


def test_a_full_disk_stops_before_the_model(rig: Rig) -> None:
    assignment = rig.admit(data=False)
    rig.set(min_free_gb=1e9)
    with pytest.raises(StorageError) as caught:
        rig.go(assignment)
    assert out_of_space(caught.value), "nothing else is fetched now"
    found = stored(rig)
    assert (found.state, found.cause) == (State.FETCHED, "disk")
    assert rig.hub.asked("GET", "adapter_model") == []
    rig.set()
    assert rig.go(found).ready


def test_a_model_that_somebody_else_fetches_is_waited_for(rig: Rig) -> None:
    assignment = rig.admit()
    folder = snapshots.folder_of(rig.places.models, "Qwen/base", rig.hub.repositories["Qwen/base"].head)
    with snapshots.held(rig.places.models, folder):
        found = rig.go(assignment)
    assert (found.state, found.cause) == (State.FETCHED, "waiting")
    assert rig.go(found).ready


def test_what_is_there_stays_when_it_is_told_to_stop(rig: Rig) -> None:
    found = rig.go(rig.admit(), stop=lambda: bool(rig.hub.asked("GET", "/Qwen/base/resolve/")))
    assert (found.state, found.cause) == (State.FETCHED, "stopped")
    assert rig.go(found).ready
    fetched = [call.path for call in rig.hub.asked("GET", "/resolve/")]
    assert len(fetched) == len(set(fetched)) == len(BASE) + len(ADAPTER), "no file came twice"


def test_who_has_lost_the_claim_writes_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    assignment = rig.admit(data=False)
    monkeypatch.setattr("automate.claims.Claim.beat", lambda claim: False)
    with pytest.raises(ClaimedError, match="taken"):
        rig.go(assignment)
    assert (stored(rig).cause, stored(rig).model) == (None, None)


def test_an_assignment_that_somebody_else_holds_is_left_alone(rig: Rig) -> None:
    assignment = rig.admit()
    with rig.spool.held("7"), pytest.raises(ClaimedError):
        rig.go(assignment)
    assert rig.hub.calls == [] and rig.store.asked == []


@pytest.mark.parametrize("state", [State.RUNNING, State.DONE, State.GIVEN_UP])
def test_an_assignment_that_has_moved_on_is_left_alone(rig: Rig, state: State) -> None:
    assignment = rig.admit()
    rig.spool.move(assignment, state)
    assert rig.go(assignment).state is state
    assert rig.hub.calls == []


def test_a_reply_that_is_no_assignment_is_left_to_a_person(rig: Rig) -> None:
    assignment = rig.spool.save(replace(rig.admit(), problem="`data` is missing", cause="reply"))
    assert rig.go(assignment) == assignment
    assert rig.hub.calls == [] and rig.store.asked == []


def test_somebody_elses_problem_stays(rig: Rig) -> None:
    found = rig.go(rig.spool.save(replace(rig.admit(), problem="odd", cause="no-such-word")))
    assert (found.problem, found.cause) == ("odd", "no-such-word")
    assert found.model is not None


# --- for a person ---------------------------------------------------------------------------------
def given_up(rig: Rig, assignment: Assignment) -> str:
    found = rig.go(assignment)
    assert found.state is State.GIVEN_UP and found.problem and found.history[-1].cause == found.cause
    assert not found.result_file.exists()
    return str(found.cause)


def test_a_gated_base_is_for_a_person(rig: Rig) -> None:
    rig.hub.repositories["Qwen/base"] = Repository(BASE, gated=True)
    assert given_up(rig, rig.admit()) == "gated"


def test_a_supported_base_that_is_gone_is_for_a_person(rig: Rig) -> None:
    rig.hub.repositories["org/adapter"] = Repository({**ADAPTER, "adapter_config.json":
                                                      b'{"base_model_name_or_path": "Qwen/other"}'})
    assert given_up(rig, rig.admit()) == "base-gone"


def test_a_huge_repository_is_known_before_a_byte_of_it_comes(rig: Rig) -> None:
    assignment = rig.admit(submission={"hg_repo_id": "org/model"}, data=False)
    rig.set(max_download_gb=1e-6)
    assert given_up(rig, assignment) == "huge"
    assert rig.hub.asked("GET", "model.safetensors") == []


def test_code_of_its_own_runs_only_where_settings_say_so(rig: Rig) -> None:
    rig.hub.repositories["org/model"] = Repository({**BASE, "config.json": b'{"auto_map": {"AutoModel": "m.M"}}',
                                                    "m.py": b"import os"})
    assert given_up(rig, rig.admit(submission={"hg_repo_id": "org/model"})) == "own-code"
    assert rig.hub.asked("GET", "m.py") == []
    rig.set(remote_code=True)
    found = rig.go(rig.admit("8", {"hg_repo_id": "org/model"}))
    assert found.ready and found.model
    assert (Path(found.model.path) / "m.py").read_bytes() == b"import os"


# --- the check before anything large --------------------------------------------------------------
def verdict(outcome: Outcome) -> Callable[[Assignment], Result]:
    return lambda assignment: Result(assignment.id, outcome, "lora", cause="said", reason="so it is")


def test_a_check_that_fails_ends_it_before_the_model(rig: Rig) -> None:
    for number, outcome, state in (("7", Outcome.FAILED, State.DONE), ("8", Outcome.UNUSABLE, State.GIVEN_UP),
                                   ("9", Outcome.RECOVERABLE, State.FETCHED)):
        found = rig.go(rig.admit(number), verdict(outcome))
        assert found.state is state
        assert found.history[-1].what.startswith("so it is")
    assert rig.hub.calls == []


def test_a_check_without_an_environment_waits(rig: Rig) -> None:
    def check(assignment: Assignment) -> Result | None:
        raise ModuleEnvironmentError("the environment of lora is not there", todo="flock-hpc validation env create")

    found = rig.go(rig.admit(), check)
    assert (found.state, found.cause) == (State.FETCHED, "environment")
    assert rig.go(found, lambda assignment: None).ready


@pytest.mark.parametrize("submission", [LORA, {"hg_repo_id": "org/policy", "model_filename": "p.onnx"}])
def test_models_folder_knows_its_workspaces(rig: Rig, submission: dict[str, object]) -> None:
    rig.hub.repositories["org/policy"] = Repository({"p.onnx": b"o"})
    rig.go(rig.admit(submission=submission))
    marks = list((rig.places.models / ".workspaces").iterdir())
    assert [mark.read_text() for mark in marks] == [str(rig.root)]
