"""The few long texts of the current client, read from the user's own checkout of it (setting `validation.templates`).

Reads literal strings of two files with `ast`; never imports or runs them, and never guesses a text."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from string import Formatter

from automate.validation.modules.base import InvalidConfigValueException
from automate.validation.modules.lora.templates import Template

WHERE = "https://github.com/FLock-io/llm-loss-validator"
TEMPLATE_FILE, TOOL_FILE = "template.py", "tool_utils.py"
TOOL_PROMPT = "DEFAULT_TOOL_PROMPT"
_REGISTER = "register_template"
_LARGEST = 1_000_000
_FORMATS = {"system_format": "system", "user_format": "user", "assistant_format": "assistant", "tool_format": "tool",
            "function_format": "call", "observation_format": "observation"}


def _refuse(reason: str) -> InvalidConfigValueException:
    return InvalidConfigValueException(
        f"{reason}: set validation.templates to a checkout of {WHERE}", cause="templates")


def _core(root: Path | None, needed_for: str) -> Path:
    """The folder of the two files, in a checkout, its `src` or its `src/core`."""
    if root is None:
        raise _refuse(f"{needed_for} needs texts that are not shipped")
    for folder in (root, root / "src", root / "src" / "core", root / "core"):
        if (folder / TEMPLATE_FILE).is_file() and (folder / TOOL_FILE).is_file():
            return folder
    raise _refuse(f"{needed_for} needs texts of {TEMPLATE_FILE} and {TOOL_FILE}, and {root} holds no such files")


def _parsed(path: Path) -> ast.Module:
    try:
        if path.stat().st_size > _LARGEST:
            raise _refuse(f"{path} is larger than {_LARGEST} bytes")
        return ast.parse(path.read_bytes(), filename=path.name)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _refuse(f"{path} can't be read ({type(error).__name__})") from error


def _registered(tree: ast.Module) -> Iterator[Mapping[str, object]]:
    """The literal keywords of every call that registers a template."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == _REGISTER:
            yield {word.arg: word.value.value for word in node.keywords
                   if word.arg and isinstance(word.value, ast.Constant)}


def complete(template: Template, root: Path | None) -> Template:
    """The template with its default system text; itself where that is known.

    Raises InvalidConfigValueException where the checkout is missing, lacks the text, or writes other markers than
    those known here (then it is another version of the client, whose figures would be others).
    """
    if not template.text_elsewhere:
        return template
    path = _core(root, f"the template {template.name!r}") / TEMPLATE_FILE
    found = next((words for words in _registered(_parsed(path)) if words.get("template_name") == template.name), None)
    text = None if found is None else found.get("system")
    if found is None or not isinstance(text, str):
        raise _refuse(f"{path} has no literal system text for {template.name!r}")
    for word, ours in _FORMATS.items():
        if word in found and found[word] != getattr(template, ours):
            raise _refuse(f"{path} writes {word} of {template.name!r} otherwise than this version knows it")
    return replace(template, default_system=text, text_elsewhere=False)


def _assigned(tree: ast.Module, name: str) -> str | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            targets = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if name in targets:
                return node.value.value
    return None


def tool_prompt(root: Path | None) -> str:
    """The format of the tools' text, with the fields `tool_text` and `tool_names`.

    Raises InvalidConfigValueException where the checkout is missing or has no such literal.
    """
    path = _core(root, "a row with tools") / TOOL_FILE
    text = _assigned(_parsed(path), TOOL_PROMPT)
    if text is None:
        raise _refuse(f"{path} has no literal {TOOL_PROMPT}")
    try:
        fields = {field for _, field, _, _ in Formatter().parse(text) if field is not None}
    except ValueError as error:
        raise _refuse(f"{path}: {TOOL_PROMPT} is not a format") from error
    if fields != {"tool_text", "tool_names"}:
        raise _refuse(f"{path}: {TOOL_PROMPT} has other fields than tool_text and tool_names")
    return text
