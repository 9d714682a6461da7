"""Where models come from: folders, adapters, templates, and what is refused before a job is handed in."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from automate.arena.answering.candidates import REHEARSAL, Candidate, candidate_of, candidates, groups, path_of
from automate.arena.answering.scripts import answer_config, answer_script, group_command, groups_of
from automate.arena.batches import Batch, Plan
from automate.workspace import Workspace
from tests.unit.support import make_workspace

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
PLAN_ID = "20260101_000000"


def safetensors(size: int = 64, *, missing: int = 0) -> bytes:
    """A file with one tensor of so many bytes, of which some are missing."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"\0" * (size - missing)


def odd_header(header: str) -> bytes:
    """A safetensors file with this header."""
    return struct.pack("<Q", len(header)) + header.encode() + bytes(9)


def make_model(folder: Path, **files: bytes | None) -> Path:
    """A model's folder; `files` replaces some, and None leaves one out (dots as __, dashes as they are)."""
    folder.mkdir(parents=True, exist_ok=True)
    every: dict[str, bytes | None] = {
        "config.json": b'{"architectures": ["X"]}', "model.safetensors": safetensors(), "tokenizer.json": b"{}",
        "tokenizer_config.json": json.dumps({"chat_template": TEMPLATE}).encode(),
        **{name.replace("__", "."): content for name, content in files.items()}}
    for name, content in every.items():
        if content is not None:
            (folder / name).write_bytes(content)
    return folder


def make_adapter(folder: Path, base: Path | str, rank: int = 8, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    told = {"peft_type": "LORA", "r": rank, "base_model_name_or_path": str(base), **config}
    (folder / "adapter_config.json").write_text(json.dumps(told))
    (folder / "adapter_model.safetensors").write_bytes(safetensors(16))
    return folder


def own(tmp_path: Path, **generate: Any) -> Workspace:
    return make_workspace(tmp_path, generate={"path": str(tmp_path / "{model}"), **generate})


def told(workspace: Workspace, model: str = "m") -> str:
    return "\n".join(map(str, candidate_of(workspace, model)[1]))


# --- where it lies -----------------------------------------------------------------------------------------------


def test_a_model_lies_where_its_own_setting_says_then_api_config_then_the_pattern(tmp_path: Path) -> None:
    workspace = own(tmp_path, models={"a": {"path": "own/a"}})
    workspace.api_config.parent.mkdir(parents=True)
    (tmp_path / "from-api").mkdir()
    entry = {"model": str(tmp_path / "from-api"), "sys_prompt": "be kind", "temperature": 0.5, "max_tokens": 77}
    nowhere = {"model": "org/none", "max_tokens": 0}
    workspace.api_config.write_text(yaml.safe_dump({"a": entry, "b": entry, "c": nowhere}))
    assert path_of(workspace, "a") == tmp_path / "own" / "a"
    assert path_of(workspace, "b") == tmp_path / "from-api"
    assert path_of(workspace, "c") == tmp_path / "c"
    asked = candidate_of(workspace, "b")[0]
    assert (asked.system_prompt, asked.temperature, asked.max_tokens) == ("be kind", 0.5, 77)
    assert candidate_of(workspace, "c")[0].max_tokens == 4096


def test_a_whole_model_has_no_problem_and_a_fingerprint(tmp_path: Path) -> None:
    make_model(tmp_path / "m")
    found, problems = candidate_of(own(tmp_path), "m")
    assert problems == []
    assert found.weights
    (tmp_path / "m" / "model.safetensors").write_bytes(safetensors(128))
    assert candidate_of(own(tmp_path), "m")[0].weights != found.weights


def test_a_model_without_a_place_says_what_to_set(tmp_path: Path) -> None:
    text = told(make_workspace(tmp_path))
    assert "nothing says where this model lies" in text
    assert "generate.path" in text


@pytest.mark.parametrize(("files", "words"), [
    ({"model__safetensors": safetensors(missing=5)}, ["model.safetensors", "still being written"]),
    ({"model__safetensors": b"1234"}, ["model.safetensors", "only 4 bytes"]),
    ({"model__safetensors": None}, ["no weights in it"]),
    ({"model__safetensors": None, "model-00001-of-00002__safetensors": safetensors()},
     ["model-00002-of-00002.safetensors", "not there"]),
    ({"model__safetensors__index__json": b'{"weight_map": {"w": "model-00007-of-00007.safetensors"}}'},
     ["model-00007-of-00007.safetensors", "not there"]),
    ({"model-2__safetensors__tmp": b"x"}, ["model-2.safetensors.tmp", "still being written"]),
    ({"model__safetensors": None, "pytorch_model__bin": b"PK\x03\x04 no end"}, ["pytorch_model.bin", "no end"]),
    ({"config__json": None}, ["config.json", "not there"]),
    ({"config__json": b'{"a":'}, ["config.json", "can't be read", "still being written"]),
    ({"config__json": b""}, ["config.json", "still being written"]),
    ({"config__json": b"[1]"}, ["config.json", "expected a JSON object, found list"]),
    ({"tokenizer__json": b'{"ver'}, ["tokenizer.json", "still being written"]),
    ({"tokenizer__json": b""}, ["tokenizer.json", "still being written"]),
    ({"tokenizer__json": b'{"a": 1}\0\0'}, ["tokenizer.json", "still being written"]),
    ({"tokenizer__json": b"[]"}, ["tokenizer.json", "expected a JSON object, found list"]),
    ({"tokenizer__json": None, "tokenizer__model": b""}, ["tokenizer.model", "still being written"]),
    ({"tokenizer_config__json": b'{"chat_template": "x'}, ["tokenizer_config.json", "still being written"]),
    ({"generation_config__json": b"{"}, ["generation_config.json", "still being written"]),
    ({"model__safetensors__index__json": b'["a"]'},
     ["model.safetensors.index.json", "expected a JSON object, found list"]),
    ({"model__safetensors__index__json": b'{"weight_map": 3}'}, ["model.safetensors.index.json", "no weight_map"]),
    ({"model__safetensors": odd_header('{"w": {"data_offsets": [0, "9"]}}')}, ["header can't be read", "data_offsets"]),
    ({"model__safetensors": odd_header('{"w": {"data_offsets": 9}}')}, ["header can't be read", "data_offsets"]),
    ({"model__safetensors": odd_header('{"w": [')}, ["header can't be read"]),
    ({"tokenizer__json": None}, ["tokenizer.json", "no tokenizer"]),
    ({"tokenizer_config__json": b"{}"}, ["no chat template"]),
    ({"chat_template__jinja": b"{% for m in messages %}"}, ["chat template that can't be read", "line 1"]),
])
def test_a_checkpoint_that_is_not_whole_is_refused_with_its_file(tmp_path: Path, files: Mapping[str, bytes | None],
                                                                 words: list[str]) -> None:
    make_model(tmp_path / "m", **files)
    text = told(own(tmp_path))
    assert all(word in text for word in words), text
    assert text.count("->") == 1, "one fault, told once"
    assert candidate_of(own(tmp_path), "m")[0].weights is None
    good, bad = candidates(own(tmp_path), ["m"])
    assert (good, bool(bad)) == ([], True)


@pytest.mark.parametrize("files", [
    {"chat_template__jinja": b"{% for m in ms %}{% generation %}{{ m }}{% endgeneration %}{% break %}{% endfor %}",
     "tokenizer_config__json": b"{}"},
    {"tokenizer_config__json": b'{"chat_template": [{"name": "default", "template": "x"}]}'},
    {"tokenizer__json": None, "tokenizer__model": b"x"},
    {"tokenizer__json": None, "vocab__json": b"{}", "merges__txt": b""},
    {"tokenizer__json": None, "tekken__json": b"{}", "tokenizer_config__json": None},
    {"optimizer__pt": b"", "training_args__bin": b""},
    {"generation_config__json": b'{"repetition_penalty": Infinity}'},
])
def test_other_shapes_of_whole_checkpoints_are_taken(tmp_path: Path, files: Mapping[str, bytes | None]) -> None:
    make_model(tmp_path / "m", **files)
    assert told(own(tmp_path)) == ""


def test_a_whole_zip_of_weights_is_taken(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m", model__safetensors=None)
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("data.pkl", b"x")
    assert told(own(tmp_path)) == ""


def test_a_template_of_the_settings_stands_in_for_the_models_own(tmp_path: Path) -> None:
    make_model(tmp_path / "m", tokenizer_config__json=b"{}")
    assert "chat template" in told(own(tmp_path, chat_template="none.jinja"))
    (tmp_path / "mine.jinja").write_text(TEMPLATE)
    workspace = own(tmp_path, chat_template="mine.jinja")
    assert told(workspace) == ""
    assert candidate_of(workspace, "m")[0].chat_template == tmp_path / "mine.jinja"


# --- adapters ----------------------------------------------------------------------------------------------------


def test_an_adapter_names_its_base_and_its_fingerprint_depends_on_both(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base")
    make_adapter(tmp_path / "a", base, 24)
    found, problems = candidate_of(own(tmp_path), "a")
    assert (problems, found.base, found.rank) == ([], base, 24)
    assert found.weights
    make_model(tmp_path / "base", model__safetensors=safetensors(99))
    assert candidate_of(own(tmp_path), "a")[0].weights != found.weights


@pytest.mark.parametrize(("change", "word"), [
    (lambda folder, base: make_adapter(folder, base).joinpath("adapter_config.json").write_text('{"r": 8,'),
     "adapter_config.json: can't be read: it is still being written"),
    (lambda folder, base: (make_adapter(folder, base) / "tokenizer.json").write_text('{"ver'), "still being written"),
    (lambda folder, base: make_adapter(folder, base, use_dora=True), "not a plain LoRA"),
    (lambda folder, base: make_adapter(folder, base, 0), "no rank"),
    (lambda folder, base: make_adapter(folder, base, 1024), "more than 512"),
    (lambda folder, base: (make_adapter(folder, base) / "adapter_model.safetensors").unlink(), "no weights in it"),
    (lambda folder, base: (make_adapter(folder, base) / "adapter_model.safetensors").write_bytes(
        safetensors(missing=1)), "still being written"),
    (lambda folder, base: (make_adapter(folder, base), (base / "tokenizer.json").unlink()), "no tokenizer"),
])
def test_an_adapter_that_can_not_be_served_is_refused(tmp_path: Path, change: Callable[[Path, Path], object],
                                                      word: str) -> None:
    change(tmp_path / "a", make_model(tmp_path / "base"))
    assert word in told(own(tmp_path), "a")


@pytest.mark.parametrize(("base", "words"), [
    ("meta-llama/none", "its base 'meta-llama/none' is no folder on this machine"), (None, "it names no base"),
    (7, "it names no base"), ("", "it names no base"),
])
def test_an_adapter_without_its_base_says_where_to_name_it(tmp_path: Path, base: object, words: str) -> None:
    make_adapter(tmp_path / "a", "", base_model_name_or_path=base)
    (problem,) = candidate_of(own(tmp_path), "a")[1]
    assert problem.where == str(tmp_path / "a" / "adapter_config.json")
    assert words in problem.what
    assert all(word in problem.todo for word in ("generate.models.<name>.base", "base_model_name_or_path", "on disk",
                                                 "hub id"))
    (problem,) = candidate_of(own(tmp_path, models={"a": {"base": "none/there"}}), "a")[1]
    assert (problem.where, "generate.models.a.base" in problem.what) == (str(tmp_path / "none" / "there"), True)
    assert "hub id" in problem.todo


def test_adapters_of_one_base_share_servers_and_the_base_never_does(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base")
    make_model(tmp_path / "other")
    for number in range(5):
        make_adapter(tmp_path / f"a{number}", base, 8 * (number + 1))
    found, problems = candidates(own(tmp_path), ["a0", "other", "a1", "base", "a2", "a3", "a4"])
    assert problems == []
    made = groups(found, 3)
    assert [group.models for group in made] == [("a0", "a1", "a2"), ("other",), ("base",), ("a3", "a4")]
    assert [group.served for group in made] == ["base-base", "other", "base", "base-base"]


def test_adapters_with_arguments_of_their_own_have_a_server_of_their_own(tmp_path: Path) -> None:
    one, two = (Candidate(name, Path(name), Path("/b"), 8, "w", args=args) for name, args in
                (("x", ()), ("y", ("--seed", "1"))))
    assert [group.models for group in groups([one, two], 8)] == [("x",), ("y",)]


def test_a_base_without_a_template_takes_its_adapters_tokenizer(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base", tokenizer_config__json=b"{}")
    folder = make_adapter(tmp_path / "a", base)
    assert "no chat template" in told(own(tmp_path), "a")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    assert candidate_of(own(tmp_path), "a")[0].tokenizer == folder


# --- scripts -----------------------------------------------------------------------------------------------------


def test_the_servers_command_has_what_the_settings_say(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base")
    for name, rank in (("a=1", 8), ("b, c", 20)):
        make_adapter(tmp_path / name, base, rank)
    workspace = own(tmp_path, server={"max_model_len": 4096, "args": ["--seed", "7"]},
                    models={"base": {"args": ["--enforce-eager"]}})
    (group,) = groups_of(workspace, ["a=1", "b, c"])
    command = group_command(workspace, group, "python")
    assert command[:5] == ["vllm", "serve", str(base), "--served-model-name", "base-base"]
    assert command[5:7] == ["--max-model-len", "4096"]
    at = command.index("--lora-modules")
    assert command[at - 5:at] == ["--enable-lora", "--max-loras", "2", "--max-lora-rank", "32"]
    assert [json.loads(text)["name"] for text in command[at + 1:at + 3]] == ["a=1", "b, c"]
    assert command[at + 3:] == ["--enable-prompt-tokens-details", "--seed", "7"]
    (alone,) = groups_of(workspace, ["base"])
    assert "--enable-lora" not in group_command(workspace, alone, "python")
    assert group_command(workspace, alone, "python")[-1] == "--enforce-eager"


def test_hostile_names_stay_words_of_the_script(tmp_path: Path) -> None:
    name = "a$(touch x)'\";`b`"
    make_model(tmp_path / name)
    workspace = own(tmp_path)
    plan = Plan(PLAN_ID, "abcdef", "b", (Batch(1, (name,), 3),), kind="generate")
    text = answer_config(workspace, plan, plan.batches[0])
    assert yaml.safe_load(text)["flock_hpc"]["groups"] == [[name]]
    script = answer_script(workspace, plan, plan.batches[0], text, "/usr/bin/python3")
    assert "'a$(touch x)'\"'\"'\";`b`'" in script
    assert text == answer_config(workspace, plan, plan.batches[0])


def test_a_rehearsal_needs_no_folder(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, generate={"kind": "rehearsal", "models": {"x": {"base": "/b"}}})
    found, problems = candidates(workspace, ["m", "x"])
    assert (problems, [one.weights for one in found]) == ([], [REHEARSAL, REHEARSAL])
    assert [group.served for group in groups(found, 8)] == ["m", "base-b"]
