"""The model hub's client against a hub on loopback: pins, lists, downloads, and tells apart what goes wrong."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automate.claims import take
from automate.errors import ClaimedError
from automate.settings_validation import Validation
from automate.validation import repositories, snapshots
from automate.validation.hub import Hub
from automate.validation.repositories import Listing, RepoFile
from automate.validation.standin.hub import Fault, HubStandIn, Repository
from automate.validation.troubles import PersonNeeded, SubmissionAtFault, TryLater

TOKEN = "hf_a-token-of-these-tests"
WEIGHTS = bytes(range(256)) * 400
MODEL = {"config.json": b'{"model_type": "llama"}', "model.safetensors": WEIGHTS, "tokenizer.json": b"{}",
         "pytorch_model.bin": b"pickle", "README.md": b"#", "train.py": b"print()", "sub/model.safetensors": b"x"}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No token or cache of whoever runs the tests; what the library waits is not waited."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)


@pytest.fixture
def standin() -> Iterator[HubStandIn]:
    with HubStandIn({"org/model": Repository(MODEL)}, tokens=[TOKEN]) as hub:
        yield hub


def client(standin: HubStandIn | str, token: str | None = None, **values: object) -> Hub:
    url = standin if isinstance(standin, str) else standin.url
    return Hub(Validation.model_validate({"hub_url": url, "retries": 2, **values}), token, sleep=lambda seconds: None)


def fetched(hub: Hub, models: Path, repo: str = "org/model", revision: str = "main") -> Path:
    listing = hub.listing(repo, revision)
    return Path(hub.download(repo, listing.commit, models, repositories.model_files(listing)).path)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_revision_is_pinned_to_its_commit(standin: HubStandIn) -> None:
    head = standin.repositories["org/model"].head
    standin.repositories["org/model"] = Repository(MODEL, revisions={"v1": "a" * 40}, older={"a" * 40: {"f": b"old"}})
    hub = client(standin)
    assert hub.pin("org/model", "main") == head
    assert hub.pin("org/model", "v1") == "a" * 40
    assert hub.listing("org/model", "a" * 40).files == (RepoFile("f", 3),)


def test_only_what_is_needed_lies_in_the_folder(standin: HubStandIn, tmp_path: Path) -> None:
    folder = fetched(client(standin), tmp_path)
    assert names(folder) == {"config.json", "model.safetensors", "tokenizer.json"}
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    head = standin.repositories["org/model"].head
    assert folder == tmp_path / "org--model" / head
    assert {path.name for path in folder.parent.iterdir()} == {head, f"{head}.json"}


def test_what_is_there_is_not_fetched_again(standin: HubStandIn, tmp_path: Path) -> None:
    fetched(client(standin), tmp_path)
    before = len(standin.asked("GET", "/resolve/"))
    assert before == 3
    fetched(client(standin), tmp_path)
    assert len(standin.asked("GET", "/resolve/")) == before


def test_a_snapshot_grows_by_what_another_assignment_needs(standin: HubStandIn, tmp_path: Path) -> None:
    hub = client(standin)
    listing = hub.listing("org/model", "main")
    fetched(hub, tmp_path)
    grown = hub.download("org/model", listing.commit, tmp_path, listing.some(["sub/model.safetensors"]))
    assert names(Path(grown.path)) == {"config.json", "model.safetensors", "tokenizer.json", "sub/model.safetensors"}
    assert snapshots.whole(Path(grown.path))
    assert len(standin.asked("GET", "/resolve/")) == 4


def test_an_interrupted_download_goes_on_where_it_was(standin: HubStandIn, tmp_path: Path) -> None:
    hub = client(standin, retries=0)
    standin.faults.append(Fault("resolve/.*/tokenizer.json", times=99, status=500))
    with pytest.raises(TryLater, match="500"):
        fetched(hub, tmp_path)
    assert not snapshots.folder_of(tmp_path, "org/model", standin.repositories["org/model"].head).exists()
    standin.faults.clear()
    folder = fetched(hub, tmp_path)
    assert len(standin.asked("GET", "model.safetensors")) == 1
    assert names(folder) == {"config.json", "model.safetensors", "tokenizer.json"}


def test_a_body_that_breaks_off_is_taken_up_in_its_middle(standin: HubStandIn, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    standin.faults.append(Fault("model.safetensors", method="GET", cut=5000))
    folder = fetched(client(standin), tmp_path)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    ranges = [call.range for call in standin.asked("GET", "model.safetensors")]
    assert ranges[0] is None
    assert all(one and one.startswith("bytes=") for one in ranges[1:]) and len(ranges) == 2


def test_other_bytes_than_the_listing_says_are_refused(tmp_path: Path) -> None:
    def write(file: RepoFile, into: Path) -> None:
        (into / file.name).write_bytes(b"wrong")

    for file in (RepoFile("f", 4), RepoFile("f", 5, "0" * 64)):
        with pytest.raises(TryLater) as caught:
            snapshots.build(tmp_path, "org/model", "a" * 40, [file], write)
        assert caught.value.cause == "hub-file"
        assert names(tmp_path) <= {name for name in names(tmp_path) if name.startswith(".claims")}


def test_somebody_else_is_fetching_it(standin: HubStandIn, tmp_path: Path) -> None:
    head = standin.repositories["org/model"].head
    claim = take(tmp_path / ".claims" / f"org--model--{head}", stale=90)
    with pytest.raises(ClaimedError, match="alive"):
        fetched(client(standin), tmp_path)
    claim.release()
    assert snapshots.whole(fetched(client(standin), tmp_path))


# --- what goes wrong ------------------------------------------------------------------------------
@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_repository_that_is_gone_is_the_submissions_fault(standin: HubStandIn, token: str | None) -> None:
    with pytest.raises(SubmissionAtFault) as caught:
        client(standin, token).listing("org/absent", "main")
    assert caught.value.cause == "repository-gone"
    with pytest.raises(SubmissionAtFault) as revision:
        client(standin, token).listing("org/model", "no-such-branch")
    assert revision.value.cause == "revision-gone"


@pytest.mark.parametrize("repo", ["../../etc", "a/b/c", "org/..", "org--x/y", "", "org/na me", "/abs"])
def test_an_id_that_can_be_none_is_never_asked_for(standin: HubStandIn, repo: str) -> None:
    with pytest.raises(SubmissionAtFault) as caught:
        client(standin).listing(repo, "main")
    assert caught.value.cause == "bad-repository"
    assert standin.calls == []


@pytest.mark.parametrize(("status", "cause"), [
    (408, "hub"), (429, "hub"), (500, "hub"), (502, "hub"), (504, "hub"), (404, "hub-refused"), (403, "hub-refused"),
    (400, "hub-refused"), (401, "hub-refused")])
def test_an_outage_is_nobodys_fault(standin: HubStandIn, status: int, cause: str) -> None:
    standin.faults.append(Fault("api/models", times=99, status=status))
    with pytest.raises(TryLater) as caught:
        client(standin).listing("org/model", "main")
    assert caught.value.cause == cause


@pytest.mark.parametrize("status", [503, 429])
def test_a_passing_outage_is_waited_for(standin: HubStandIn, status: int) -> None:
    standin.faults.append(Fault("api/models", times=2, status=status))
    assert client(standin).pin("org/model", "main")
    assert len(standin.asked("GET", "api/models")) == 3


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_outage_while_files_come_is_nobodys_fault(standin: HubStandIn, tmp_path: Path, status: int) -> None:
    standin.faults.append(Fault("/resolve/", times=999, status=status))
    with pytest.raises(TryLater) as caught:
        fetched(client(standin, retries=0), tmp_path)
    assert caught.value.cause == "hub"


def test_no_network_is_nobodys_fault(tmp_path: Path) -> None:
    with HubStandIn({}) as gone:
        url = gone.url
    with pytest.raises(TryLater) as caught:
        client(url, retries=0).listing("org/model", "main")
    assert caught.value.cause == "network"
    with pytest.raises(TryLater) as files:
        client(url, retries=0).download("org/model", "a" * 40, tmp_path, [RepoFile("f", 1)])
    assert files.value.cause == "network"


@pytest.mark.parametrize(("number", "cause"), [
    (errno.ENOSPC, "disk"), (errno.EDQUOT, "disk"), (errno.EACCES, "storage")])
def test_a_disk_that_refuses_is_nobodys_fault(standin: HubStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                              number: int, cause: str) -> None:
    def full(*given: object, **named: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("huggingface_hub.file_download.http_get", full)
    with pytest.raises(TryLater) as caught:
        fetched(client(standin), tmp_path)
    assert caught.value.cause == cause and not caught.value.soon


def test_a_library_that_is_told_to_stay_offline(standin: HubStandIn, tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    listing = client(standin).listing("org/model", "main")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(TryLater, match="HF_HUB_OFFLINE") as pinned:
        client(standin).pin("org/model", "main")
    with pytest.raises(TryLater, match="HF_HUB_OFFLINE") as loaded:
        client(standin).download("org/model", listing.commit, tmp_path, listing.files[:1])
    assert pinned.value.cause == loaded.value.cause == "offline"


def test_a_gated_repository_is_for_a_person(standin: HubStandIn, tmp_path: Path) -> None:
    standin.repositories["org/gated"] = Repository(MODEL, gated=True)
    with pytest.raises(PersonNeeded) as caught:
        fetched(client(standin), tmp_path, "org/gated")
    assert caught.value.cause == "gated"
    assert snapshots.whole(fetched(client(standin, TOKEN), tmp_path, "org/gated"))


def test_a_disabled_repository_is_for_a_person(standin: HubStandIn) -> None:
    standin.repositories["org/off"] = Repository(MODEL, disabled=True)
    with pytest.raises(PersonNeeded) as caught:
        client(standin).listing("org/off", "main")
    assert caught.value.cause == "disabled"


def test_a_bad_token_is_no_fault_of_the_submission_and_is_tried_again(standin: HubStandIn) -> None:
    for repo in ("org/model", "org/absent"):
        with pytest.raises(TryLater) as caught:
            client(standin, "hf_stale").listing(repo, "main")
        assert (caught.value.cause, caught.value.soon) == ("hub-token", False)


class Https:
    """The library's client with replies made here in place of the hub's, at the hub's own https addresses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from huggingface_hub.utils import _http

        self.http = next(getattr(_http, name) for name in ("httpx2", "httpx") if hasattr(_http, name))
        self.replies: dict[str, tuple[int, dict[str, str]]] = {}
        self.asked: list[str] = []
        monkeypatch.setattr(_http, "_GLOBAL_CLIENT", None)
        monkeypatch.setattr(_http, "_GLOBAL_CLIENT_FACTORY",
                            lambda: self.http.Client(transport=self.http.MockTransport(self.answer)))

    def answer(self, request: Any) -> Any:
        self.asked.append(request.url.path)
        status, headers = next(value for part, value in self.replies.items() if part in request.url.path)
        return self.http.Response(status, headers=headers, content=b"{}")


@pytest.fixture
def https(monkeypatch: pytest.MonkeyPatch) -> Iterator[Https]:
    from huggingface_hub import close_session

    yield Https(monkeypatch)
    close_session()


GONE = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}


@pytest.mark.parametrize(("token", "headers", "whoami", "cause"), [
    (TOKEN, {"X-Error-Message": 'User Access Token "mine" is expired'}, 401, "hub-token"),
    (TOKEN, {"X-Error-Message": "Invalid credentials in Authorization header"}, 401, "hub-token"),
    (TOKEN, {"WWW-Authenticate": 'Basic realm="campus"', "Content-Type": "text/html"}, 401, "hub-token"),
    (TOKEN, {}, 503, "hub-token"), (TOKEN, GONE, 401, "hub-token"), (TOKEN, GONE, 500, "hub-token"),
    (TOKEN, {}, 200, "hub-refused"), (None, {}, 401, "hub-refused"),
    (None, {"Content-Type": "text/html"}, 401, "hub-refused")])
def test_a_401_that_is_not_about_the_repository_blames_nobody(https: Https, token: str | None,
                                                              headers: dict[str, str], whoami: int,
                                                              cause: str) -> None:
    https.replies = {"whoami": (whoami, {}), "": (401, headers)}
    with pytest.raises(TryLater) as caught:
        Hub(Validation(retries=0), token, sleep=lambda seconds: None).listing("miner/adapter", "main")
    assert caught.value.cause == cause
    assert "/api/models/miner/adapter/revision/main" in https.asked


@pytest.mark.parametrize("status", [401, 404])
@pytest.mark.parametrize("token", [None, TOKEN])
def test_the_hubs_own_word_is_the_submissions_fault(https: Https, status: int, token: str | None) -> None:
    https.replies = {"whoami": (200, {}), "": (status, GONE)}
    with pytest.raises(SubmissionAtFault) as caught:
        Hub(Validation(retries=0), token).listing("miner/adapter", "main")
    assert caught.value.cause == "repository-gone"


def test_a_proxys_404_blames_nobody(https: Https) -> None:
    https.replies = {"": (404, {"Content-Type": "text/html"})}
    with pytest.raises(TryLater):
        Hub(Validation(retries=0), None).listing("miner/adapter", "main")


# --- a file that trickles -------------------------------------------------------------------------
def test_a_file_that_trickles_is_left_when_told_to_stop(standin: HubStandIn, tmp_path: Path) -> None:
    standin.repositories["org/model"] = Repository({"model.safetensors": b"w" * 300})
    standin.faults.append(Fault("model.safetensors", method="GET", drip=0.01))
    hub = Hub(Validation(hub_url=standin.url, retries=0), None, every=0.05)
    listing = hub.listing("org/model", "main")
    beats: list[int] = []

    def beat() -> None:
        beats.append(1)
        if len(beats) > 5:
            raise ClaimedError("told to stop")

    with pytest.raises(ClaimedError, match="told to stop"):
        hub.download("org/model", listing.commit, tmp_path, listing.some(["model.safetensors"]), beat=beat)
    assert not snapshots.folder_of(tmp_path, "org/model", listing.commit).exists()


def test_a_file_that_trickles_for_long_is_tried_later(standin: HubStandIn, tmp_path: Path) -> None:
    standin.repositories["org/model"] = Repository({"model.safetensors": b"w" * 300})
    standin.faults.append(Fault("model.safetensors", method="GET", drip=0.01))
    ticks = iter(range(0, 10**9, 100))
    hub = Hub(Validation(hub_url=standin.url, retries=0), None, every=0.05, clock=lambda: float(next(ticks)))
    listing = hub.listing("org/model", "main")
    with pytest.raises(TryLater, match="too slowly") as caught:
        hub.download("org/model", listing.commit, tmp_path, listing.some(["model.safetensors"]))
    assert caught.value.cause == "network"


def test_a_hub_without_sizes_or_commit_blames_nobody() -> None:
    for commit, size in (("main", 1), ("a" * 40, None), ("a" * 40, -1), (None, 1)):
        with pytest.raises(TryLater):
            repositories.parse_listing("org/model", commit, [("f", size, None)])


# --- the token ------------------------------------------------------------------------------------
def test_no_other_token_is_used(standin: HubStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    (tmp_path / "nowhere").write_text(TOKEN)
    fetched(client(standin), tmp_path)
    assert {call.token for call in standin.calls} == {None}


def test_the_token_goes_to_the_hub_and_nowhere_else(standin: HubStandIn, tmp_path: Path,
                                                    capfd: pytest.CaptureFixture[str]) -> None:
    hub = client(standin, TOKEN)
    fetched(hub, tmp_path)
    assert {call.token for call in standin.calls} == {TOKEN}
    standin.faults.append(Fault("", times=999, status=500, headers={"X-Error-Message": f"odd {TOKEN}"}))
    with pytest.raises(TryLater) as caught:
        hub.listing("org/model", "main")
    assert TOKEN not in str(caught.value)
    assert TOKEN not in "".join(capfd.readouterr())
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


# --- names are strangers' -------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/../../b", "a\\b", ".cache/huggingface/download/x", "a//b",
                                  "", "C:/x", "a\nb", "x" * 300, ".git/config", None, 7, "a/./b"])
def test_names_that_could_leave_the_folder_are_never_taken(name: object) -> None:
    assert not repositories.safe_name(name)
    listing = repositories.parse_listing("org/model", "a" * 40, [(name, 1, None), ("config.json", 2, None)])
    assert [one.name for one in listing.files] == ["config.json"]


def test_hostile_names_reach_no_disk(standin: HubStandIn, tmp_path: Path) -> None:
    evil = {"config.json": b"{}", "model.safetensors": b"w", "../escaped.json": b"!"}
    standin.repositories["org/evil"] = Repository(evil, extra=({"rfilename": "/abs.json", "size": 3},))
    folder = fetched(client(standin), tmp_path / "models", "org/evil")
    assert names(folder) == {"config.json", "model.safetensors"}
    assert not list(tmp_path.rglob("escaped*"))


# --- which files ----------------------------------------------------------------------------------
def listing_of(*files: str, sizes: Mapping[str, int] | None = None) -> Listing:
    return Listing("org/model", "a" * 40, tuple(RepoFile(name, (sizes or {}).get(name, 1)) for name in files))


@pytest.mark.parametrize(("files", "taken"), [
    (["config.json", "model-00001-of-2.safetensors", "model-00002-of-2.safetensors", "model.safetensors.index.json",
      "consolidated.safetensors", "pytorch_model.bin"],
     {"config.json", "model-00001-of-2.safetensors", "model-00002-of-2.safetensors", "model.safetensors.index.json"}),
    (["config.json", "pytorch_model.bin", "optimizer.bin", "training_args.bin"], {"config.json", "pytorch_model.bin"}),
    (["adapter_config.json", "adapter_model.safetensors", "adapter_model.bin", "checkpoint-5/optimizer.pt"],
     {"adapter_config.json", "adapter_model.safetensors"}),
    (["adapter_config.json", "adapter_model.bin"], {"adapter_config.json", "adapter_model.bin"}),
    (["weights.bin", "deep/policy.onnx"], {"weights.bin", "deep/policy.onnx"}),
])
def test_the_files_of_a_kind_of_repository(files: list[str], taken: set[str]) -> None:
    assert {one.name for one in repositories.model_files(listing_of(*files))} == taken


def test_code_is_taken_where_it_may_run() -> None:
    listing = listing_of("config.json", "modeling_x.py", "model.safetensors")
    assert listing.file("modeling_x.py") not in repositories.model_files(listing)
    assert listing.file("modeling_x.py") in repositories.model_files(listing, code=True)


def test_a_policy_and_its_weights() -> None:
    listing = listing_of("policy.onnx", "policy.onnx.data", "other.onnx")
    both = repositories.policy_files(listing, "policy.onnx")
    assert [one.name for one in both] == ["policy.onnx", "policy.onnx.data"]
    assert [one.name for one in repositories.policy_files(listing, "other.onnx")] == ["other.onnx"]
    for name in ("absent.onnx", "../policy.onnx", None, 3, ""):
        with pytest.raises(SubmissionAtFault) as caught:
            repositories.policy_files(listing, name)
        assert caught.value.cause == "missing-model-file"


@pytest.mark.parametrize(("config", "cause"), [
    (b"not json", "bad-adapter-config"), (b"[]", "bad-adapter-config"), (b"{}", "bad-adapter-config"),
    (b'{"base_model_name_or_path": null}', "bad-adapter-config"),
    (b'{"base_model_name_or_path": "/home/me/base"}', "bad-base"),
    (b'{"base_model_name_or_path": "../../x"}', "bad-base"), (b'{"base_model_name_or_path": {"a": 1}}', "bad-base")])
def test_an_adapter_without_a_base_is_the_submissions_fault(config: bytes, cause: str) -> None:
    with pytest.raises(SubmissionAtFault) as caught:
        repositories.base_of(config, "org/adapter")
    assert caught.value.cause == cause


def test_own_code_is_what_auto_map_names() -> None:
    config = {"auto_map": {"AutoConfig": "configuration_x.C", "AutoTokenizer": ["tok_x.T", None],
                           "AutoModel": "other/repo--modeling_x.M"}}
    assert repositories.own_code(json.dumps(config).encode()) == ["configuration_x", "other/repo--modeling_x", "tok_x"]
    assert [repositories.own_code(text) for text in (b'{"auto_map": {}}', b"[1]", b"{")] == [[], [], []]


def test_the_library_asks_the_named_hub_only(standin: HubStandIn) -> None:
    import huggingface_hub.constants as constants

    client(standin).pin("org/model", "main")
    assert constants.HF_HUB_DISABLE_TELEMETRY
    assert [call.path.split("?")[0] for call in standin.calls] == ["/api/models/org/model/revision/main"]


def test_a_repository_is_made_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "f").write_bytes(b"1")
    made = Repository.of_folder(tmp_path)
    assert made.files == {"sub/f": b"1"}
    assert replace(made, commit="b" * 40).resolve("main") == ("b" * 40, made.files)
