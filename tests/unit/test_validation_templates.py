"""Conversations to tokens and masks, for every template, against texts written out by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from automate.validation.modules.base import InvalidConfigValueException, RecoverableException
from automate.validation.modules.lora import checkout, rows, templates
from automate.validation.modules.lora.bases import SUPPORTED_BASE_MODELS
from automate.validation.modules.lora.rows import Row

TALK: dict[str, Any] = {"conversations": [
    {"role": "user", "content": " Hi {there} "},
    {"role": "assistant", "content": "Yes?\n"},
    {"role": "user", "content": "Look"},
    {"role": "function_call", "content": '{"name": "find", "arguments": {"q": "é"}}'},
    {"role": "observation", "content": "42"},
    {"role": "assistant", "content": "It is 42"},
    {"role": "user", "content": "never answered"},
]}
CALL = 'Action: find\nAction Input: {"q": "é"}\n\n'
STOPS = "⏹"
PROMPT = "TOOLS\n{tool_text}NAMES [{tool_names}] {{x}}\n"


class Letters:
    """A tokenizer whose tokens are the code points of the text, marks its calls, and hides one special letter."""

    eos_token = STOPS

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert add_special_tokens is False
        self.texts.append(text)
        return [ord(letter) for letter in text]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        assert skip_special_tokens is True
        return "".join(map(chr, token_ids)).replace(STOPS, "")


def stand_in(root: Path, system: str = "Be brief.", prompt: str = PROMPT) -> Path:
    """A checkout of the same form as the client's, with other words."""
    core = root / "src" / "core"
    core.mkdir(parents=True)
    parts = []
    for name in ("qwen1.5", "llama2"):
        found = templates.TEMPLATES[name]
        parts.append(
            f"register_template(\n    template_name={name!r},\n    system_format={found.system!r},\n"
            f"    user_format={found.user!r},\n    assistant_format={found.assistant!r},\n"
            f"    tool_format='{{content}}',\n    function_format='{{content}}',\n    "
            f"observation_format={found.observation!r},\n"
            f"    system={system!r}\n    \" ({name})\",\n    stop_word=None,\n)\n")
    (core / "template.py").write_text("raise SystemExit('run')\n" + "".join(parts))
    (core / "tool_utils.py").write_text(
        f"import nowhere\nDEFAULT_TOOL_PROMPT = (\n    {prompt[:6]!r}\n    {prompt[6:]!r}\n)\n")
    return root


def marked(row: Row) -> str:
    """A row as text, targets between « and »."""
    text, inside = "", 0
    for token, mark in zip(row.ids, row.mask, strict=True):
        text += ("»" if inside and not mark else "«" if mark and not inside else "") + chr(token)
        inside = mark
    return text + ("»" if inside else "")


def encoded(name: str, row: Mapping[str, object] | None = None, tokenizer: Letters | None = None,
            root: Path | None = None, length: int = 10_000) -> Row:
    template = checkout.complete(templates.find(name), root)
    return rows.encode(row or TALK, template, tokenizer or Letters(), length, lambda: PROMPT)


IM = ("<|im_start|>user\nHi {there}<|im_end|>\n<|im_start|>assistant\n«Yes?<|im_end|>\n»"
      "<|im_start|>user\nLook<|im_end|>\n<|im_start|>assistant\n" + CALL
      + "<|im_start|>tool\n42<im_end>\n<|im_start|>assistant\n«It is 42<|im_end|>\n»")
INST = "[INST]Hi {there}[/INST]«Yes?</s>»[INST]Look[/INST]" + CALL + "42«It is 42</s>»"
PHI = ("<|user|>\nHi {there}<|end|>\n<|assistant|>«Yes?<|end|>\n»<|user|>\nLook<|end|>\n<|assistant|>" + CALL
       + "<|tool|>\n42<|end|>\n<|assistant|>«It is 42<|end|>\n»")
HEAD = "<|start_header_id|>%s<|end_header_id|>\n\n"
GOLDEN = {
    "default": f"User: Hi {{there}}\nAssistant: «Yes? {STOPS}»User: Look\nAssistant: {CALL}Tool\n42\n"
               f"«It is 42 {STOPS}»",
    "qwen1.5": "<|im_start|>system\nBe brief. (qwen1.5)<|im_end|>\n" + IM,
    "yi": IM,
    "zephyr": "<|user|>\nHi {there}</s>\n<|assistant|>\n«Yes?</s>\n»<|user|>\nLook</s>\n<|assistant|>\n" + CALL
              + "<|tool|>\n42</s>\n<|assistant|>\n«It is 42</s>\n»",
    "mistral": "<s>" + INST,
    "mixtral": "<s>" + INST,
    "llama2": "<<SYS>>\nBe brief. (llama2)\n<</SYS>>\n\n" + INST.replace("</s>", " </s>"),
    "gemma": "<bos><start_of_turn>user\nHi {there}<end_of_turn>\n<start_of_turn>model\n«Yes?<eos>\n»"
             "<start_of_turn>user\nLook<end_of_turn>\n<start_of_turn>model\n" + CALL
             + "<start_of_turn>tool\n42<end_of_turn>\n<start_of_turn>model\n«It is 42<eos>\n»",
    "llama3": HEAD % "user" + "Hi {there}<|eot_id|>" + HEAD % "assistant" + "«Yes?<|eot_id|>»" + HEAD % "user"
              + "Look<|eot_id|>" + HEAD % "assistant" + CALL + HEAD % "tool" + "42<|eot_id|>" + HEAD % "assistant"
              + "«It is 42<|eot_id|>»",
    "phi3": PHI,
    "phi4": PHI.replace(CALL, f"<|tool_call|>{CALL}<|/tool_call|>"),
}
SYSTEM = {
    "default": "System: Obey.\n\n",
    "qwen1.5": "<|im_start|>system\nObey.<|im_end|>\n",
    "yi": "<|im_start|>system\nObey.<|im_end|>\n",
    "zephyr": "<|system|>\nObey.</s>",
    "mistral": "<s>",
    "mixtral": "<s>",
    "llama2": "<<SYS>>\nObey.\n<</SYS>>\n\n",
    "gemma": "<bos>",
    "llama3": "<|begin_of_text|>" + HEAD % "system" + "Obey.<|eot_id|>",
    "phi3": "",
    "phi4": "",
}


@pytest.mark.parametrize("name", list(templates.TEMPLATES))
def test_a_conversation_without_a_system_text(name: str, tmp_path: Path) -> None:
    assert marked(encoded(name, root=stand_in(tmp_path))) == GOLDEN[name]


@pytest.mark.parametrize("name", list(templates.TEMPLATES))
def test_a_row_s_own_system_text_stands_where_the_template_has_a_place_for_one(name: str, tmp_path: Path) -> None:
    row = {"system": " Obey. ", "conversations": [{"role": "assistant", "content": "x"}]}
    assert marked(encoded(name, row, root=stand_in(tmp_path))).partition("«")[0] == SYSTEM[name]


def test_pieces_are_tokenised_apart(tmp_path: Path) -> None:
    tokenizer = Letters()
    encoded("qwen1.5", tokenizer=tokenizer, root=stand_in(tmp_path))
    assert len(tokenizer.texts) == 5
    assert tokenizer.texts[2] == "Yes?<|im_end|>\n"
    assert tokenizer.texts[3].startswith("<|im_start|>user\nLook") and CALL in tokenizer.texts[3]


def test_tools_are_written_in_the_checkout_s_prompt_before_the_conversation() -> None:
    tools = [{"name": "find", "description": "looks", "parameters": {
                "properties": {"q": {"type": "string", "description": "what", "enum": ["a", "b"]},
                               "n": {"items": {"type": "int"}}}, "required": ["q"]}},
             {"name": "stop", "parameters": {"properties": {}}}]
    row = {"tools": json.dumps(tools), "conversations": TALK["conversations"][:2]}
    text = ("TOOLS\n> Tool Name: find\nTool Description: looks\nTool Args:\n"
            "  - q (string, required): what, should be one of [a, b]\n"
            "  - n (): , where each item should be int\n\n"
            "> Tool Name: stop\nTool Description: \nTool Args:\n\nNAMES [find, stop] {x}\n")
    assert marked(encoded("yi", row)).startswith(text + "<|im_start|>user")
    assert marked(encoded("phi4", row)).startswith(f"<|tool|>{text}<|/tool|><|user|>")


def test_what_is_beyond_the_context_is_cut_and_not_counted() -> None:
    whole = encoded("yi")
    for length in (1, 46, 47, 60, 10_000):
        cut = encoded("yi", length=length)
        assert (cut.ids, cut.mask) == (whole.ids[:length], whole.mask[:length])
        assert cut.predicted == sum(whole.mask[1:length])


def test_a_target_at_the_first_position_counts_but_is_not_predicted() -> None:
    row = encoded("phi3", {"conversations": [{"role": "assistant", "content": "ab"}]})
    assert len(row.targets) == len(row.ids) == row.predicted + 1


def test_counts_are_of_targets_and_of_bytes_without_special_tokens() -> None:
    text = f"é{STOPS}b"
    row = Row(tuple(map(ord, "x" + text)), (0, 1, 1, 1))
    assert rows.count([row, Row((1, 2), (0, 0))], Letters()) == rows.Counts(tokens=3, bytes=3)


@pytest.mark.parametrize("name", ["qwen1.5", "llama2"])
def test_without_the_checkout_such_templates_are_refused(name: str, tmp_path: Path) -> None:
    for root in (None, tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InvalidConfigValueException, match=r"validation\.templates.*llm-loss-validator") as caught:
            checkout.complete(templates.find(name), root)
        assert caught.value.cause == "templates"


@pytest.mark.parametrize("below", ["", "src", "src/core"])
def test_the_checkout_may_be_named_at_three_places(below: str, tmp_path: Path) -> None:
    root = stand_in(tmp_path) / below
    assert checkout.complete(templates.find("llama2"), root).default_system == "Be brief. (llama2)"
    assert checkout.tool_prompt(root) == PROMPT


def test_other_templates_need_no_checkout() -> None:
    for name in set(templates.TEMPLATES) - {"qwen1.5", "llama2"}:
        assert checkout.complete(templates.find(name), None) is templates.find(name)


@pytest.mark.parametrize("change", [
    ("<im_end>", "<|im_end|>"),
    ("system='Be brief.'", "system=open('x').read()"),
    ("template_name='qwen1.5'", "template_name='qwen2'"),
    ("register_template(\n", "register_template((\n"),
])
def test_a_checkout_that_says_something_else_is_refused(change: tuple[str, str], tmp_path: Path) -> None:
    path = stand_in(tmp_path) / "src" / "core" / "template.py"
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(InvalidConfigValueException, match=r"template\.py"):
        checkout.complete(templates.find("qwen1.5"), tmp_path)


@pytest.mark.parametrize("prompt", [
    "no fields", "{tool_text} {tool_names} {other}", "{tool_text.__class__} {tool_names}"])
def test_a_tool_prompt_with_other_fields_is_refused(prompt: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigValueException, match="fields"):
        checkout.tool_prompt(stand_in(tmp_path, prompt=prompt))


def test_a_row_with_tools_without_the_checkout_is_refused_and_one_without_is_not(tmp_path: Path) -> None:
    data = tmp_path / "set.jsonl"
    plain = json.dumps(TALK) + "\n"
    data.write_text(plain + json.dumps({**TALK, "tools": ""}) + "\n")
    read = (data, templates.find("yi"), Letters(), 999, lambda: checkout.tool_prompt(None))
    assert len(rows.read_rows(*read)) == 2
    data.write_text(plain + json.dumps({**TALK, "tools": '[{"name": "x", "parameters": {"properties": {}}}]'}) + "\n")
    with pytest.raises(InvalidConfigValueException, match="tools"):
        rows.read_rows(*read)


@pytest.mark.parametrize("line", [
    "", "{", "[]", "1", "{}", '{"conversations": 3}', '{"conversations": [{"role": "user"}]}',
    '{"conversations": [{"role": "user", "content": null}]}', '{"system": null, "conversations": []}',
    '{"conversations": [{"role": "function_call", "content": "{}x"}]}',
    '{"conversations": [{"role": "function_call", "content": "[1]"}]}',
    '{"tools": "[{}]", "conversations": []}', '{"tools": "{", "conversations": []}', "[" * 100_000,
])
def test_a_broken_row_is_named_and_recoverable(line: str, tmp_path: Path) -> None:
    data = tmp_path / "set.jsonl"
    data.write_text(json.dumps(TALK) + "\n" + line + "\n" + json.dumps(TALK) + "\n")
    with pytest.raises(RecoverableException, match="row 2 ") as caught:
        rows.read_rows(data, templates.find("yi"), Letters(), 99, lambda: PROMPT)
    assert caught.value.cause == "data" and not isinstance(caught.value, InvalidConfigValueException)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\n"])
def test_an_empty_set_and_one_that_is_not_text_are_recoverable(content: bytes, tmp_path: Path) -> None:
    data = tmp_path / "set.jsonl"
    data.write_bytes(content)
    with pytest.raises(RecoverableException) as caught:
        rows.read_rows(data, templates.find("yi"), Letters(), 99, lambda: PROMPT)
    assert caught.value.cause == "data"


def test_separators_inside_of_a_row_do_not_end_it(tmp_path: Path) -> None:
    data = tmp_path / "set.jsonl"
    data.write_text(json.dumps({"conversations": [{"role": "assistant", "content": "a\u2028b\u0085c"}]},
                               ensure_ascii=False) + "\r\n", encoding="utf-8")
    found = rows.read_rows(data, templates.find("phi3"), Letters(), 99, lambda: PROMPT)
    assert "".join(map(chr, found[0].ids)) == "a\u2028b\u0085c<|end|>\n"


def test_an_unknown_template_is_a_person_s_business() -> None:
    with pytest.raises(InvalidConfigValueException, match="'qwen9'") as caught:
        templates.find("qwen9")
    assert caught.value.cause == "template"


def test_supported_bases_are_those_of_the_client() -> None:
    assert len(SUPPORTED_BASE_MODELS) == len(set(SUPPORTED_BASE_MODELS)) == 42
    assert {"Qwen/Qwen2.5-0.5B", "01-ai/Yi-1.5-34B-Chat", "google/gemma-2-27b-it", "microsoft/phi-4",
            "meta-llama/Meta-Llama-3.1-70B-Instruct", "mistralai/Ministral-8B-Instruct-2410"} <= set(
                SUPPORTED_BASE_MODELS)
