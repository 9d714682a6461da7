"""The judge's prompts, read from the user's own checkout of FLock-validator by `ast`; none of its code is run.

Holds no sentence of that project, which has no licence: without the checkout nothing is judged."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automate.validation.modules.base import InvalidConfigValueException
from automate.validation.modules.llm_judge.dataset import Message

SETTING = "validation.judge_prompts"
FOLDER = Path("validator/modules/llm_judge")
LARGEST = 2_000_000
"""Bytes of a source file that is read."""
ROLES = {1: ("context", "answer"), 2: ("context", "reference", "answer"),
         3: ("context", "reference", "tools", "answer")}
"""What the parameters of each registered prompt stand for, in their order."""


class NoPrompt(Exception):
    """A prompt that the current client can't fill either: it scores the conversation by default."""


@dataclass(frozen=True)
class Template:
    """A prompt's text and what stands in each of its fields (a name of `ROLES`)."""

    text: str
    fields: Mapping[str, str]


@dataclass(frozen=True)
class Prompts:
    """The registered prompts by number, the judge's system text, the Jinja template of function calls."""

    templates: Mapping[int, Template]
    system: str
    calls: str

    def messages(self, prompt: Any, *, context: str, answer: str, reference: str | None,
                 tools: Any) -> list[dict[str, str]]:
        """What a judge is asked: the prompt as user, then the system text (in this order, as the client has it).

        Odd and kept: a number that is not registered, 0 for one, becomes 1. Raises NoPrompt for 2 without a reference,
        for 3 without reference or tools, and where `prompt` is no number at all but a list or object.
        """
        try:
            number = prompt if prompt in self.templates else 1
        except TypeError as error:
            raise NoPrompt("the task's prompt_id is neither number nor text") from error
        values = {"context": context, "answer": answer, "reference": reference, "tools": tools}
        template = self.templates[number]
        lacking = [name for name in ("reference", "tools") if name in ROLES[number] and not values[name]]
        if lacking:
            raise NoPrompt(f"prompt {number} needs {' and '.join(lacking)}, which this row lacks")
        filled = template.text.format(**{field: str(values[role]) for field, role in template.fields.items()})
        return [{"role": "user", "content": filled}, {"role": "system", "content": self.system}]

    def render_call(self, message: Message) -> str:
        """A function call as the text of a reference. Raises ValueError where the checkout's template can't."""
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        try:
            environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
            return environment.from_string(self.calls).render(messages=[message])
        except (TemplateError, TypeError, AttributeError) as error:
            raise ValueError(f"its function call can't be written as a reference ({error})") from error


def read_prompts(checkout: Path | None) -> Prompts:
    """The prompts of a checkout. Raises InvalidConfigValueException naming the setting, the file and what it lacks."""
    if checkout is None:
        raise _wrong("the judge's prompts are read from your own checkout of FLock-io/FLock-validator: name its "
                     f"folder in {SETTING}")
    source = _parse(checkout / FOLDER / "prompt.py")
    return Prompts(_templates(source, checkout / FOLDER / "prompt.py"),
                   _text(_parse(checkout / FOLDER / "__init__.py"), "system_prompt", checkout / FOLDER / "__init__.py"),
                   _text(source, "template_str", checkout / FOLDER / "prompt.py"))


def _wrong(said: str) -> InvalidConfigValueException:
    return InvalidConfigValueException(said, cause="judge-prompts")


def _parse(path: Path) -> ast.Module:
    try:
        if path.stat().st_size > LARGEST:
            raise _wrong(f"{path} ({SETTING}) is too large to be what is looked for")
        return ast.parse(path.read_bytes())
    except OSError as error:
        raise _wrong(f"{SETTING}: can't read {path}: {error.strerror}") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _wrong(f"{SETTING}: {path} is not Python that can be read") from error


def _assigned(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(name, text) of every assignment of a text to a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from ((target.id, node.value.value) for target in node.targets if isinstance(target, ast.Name))


def _text(tree: ast.AST, name: str, path: Path) -> str:
    found = [text for known, text in _assigned(tree) if known == name]
    if len(found) != 1:
        raise _wrong(f"{SETTING}: {path} assigns a text to `{name}` {len(found)} times, expected once")
    return found[0]


def _templates(tree: ast.Module, path: Path) -> dict[int, Template]:
    found = {number: _template(node, number, path) for node in tree.body if isinstance(node, ast.FunctionDef)
             for number in _numbers(node)}
    if set(found) != set(ROLES):
        raise _wrong(f"{SETTING}: {path} registers prompts {sorted(found)}, expected {sorted(ROLES)}")
    return found


def _numbers(function: ast.FunctionDef) -> Iterator[int]:
    """Numbers under which a function is registered as a prompt."""
    for one in function.decorator_list:
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "register":
            given = [*one.args, *(keyword.value for keyword in one.keywords if keyword.arg == "prompt_id")]
            yield from (value.value for value in given
                        if isinstance(value, ast.Constant) and isinstance(value.value, int))


def _template(function: ast.FunctionDef, number: int, path: Path) -> Template:
    """The text that a prompt's function formats and returns, and which parameter goes where."""
    roles = dict(zip([one.arg for one in function.args.args], ROLES.get(number, ()), strict=False))
    texts = dict(_assigned(function))
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            call = node.value
            if isinstance(call.func, ast.Attribute) and call.func.attr == "format" and isinstance(
                    call.func.value, ast.Name) and call.func.value.id in texts:
                fields = {one.arg: roles.get(one.value.id, "") for one in call.keywords
                          if one.arg and isinstance(one.value, ast.Name)}
                return _checked(Template(texts[call.func.value.id], fields), number, path)
    raise _wrong(f"{SETTING}: {path}: prompt {number} is not of the form that is known")


def _checked(template: Template, number: int, path: Path) -> Template:
    try:
        used = {name for _, name, spec, change in string.Formatter().parse(template.text)
                if name is not None and not spec and change is None}
        fields = {name for _, name, _, _ in string.Formatter().parse(template.text) if name is not None}
    except ValueError as error:
        raise _wrong(f"{SETTING}: {path}: prompt {number} is not a text that can be filled") from error
    if used != fields or not fields <= set(template.fields) or set(template.fields.values()) != set(
            ROLES.get(number, ())):
        raise _wrong(f"{SETTING}: {path}: prompt {number} is not of the form that is known")
    return template
