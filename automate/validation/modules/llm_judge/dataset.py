"""The validation set of `llm_judge`: JSON lines to messages for the chat template, and to references for the judge.

Never scores and never blames the submission: a row that can't be read is the validator's trouble."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from automate.validation.modules.base import RecoverableException

Message = dict[str, Any]
Render = Callable[[Message], str]
"""Text of a function call that is a reference."""


@dataclass(frozen=True)
class Item:
    """One conversation. `messages`: the system message (its content None where the row has none), then the turns before
    the answer. `reference`: the row's own answer; `tools`: as in the row."""

    messages: tuple[Message, ...]
    reference: str | None
    tools: Any


def read_items(path: Path, render: Render) -> list[Item]:
    """The conversations of a validation set; rows without any turn for the model are left out, as blank lines are.

    Raises RecoverableException with the number of the line for a row that is broken, and for an empty set.
    """
    found = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    item = _read(line, number, render)
                    found += [] if item is None else [item]
    except UnicodeDecodeError as error:
        raise RecoverableException(f"the validation set is not UTF-8: {error.reason} at byte {error.start}",
                                   cause="data") from error
    if not found:
        raise RecoverableException("the validation set has no conversation", cause="data")
    return found


def _read(line: str, number: int, render: Render) -> Item | None:
    try:
        row = json.loads(line, parse_constant=_no_constant)
        json.dumps(row, ensure_ascii=False).encode()
        return _item(row, render)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = type(error).__name__ if isinstance(error, (UnicodeError, RecursionError)) else str(error)
        raise RecoverableException(f"the validation set's row {number} is broken: {said}", cause="data") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _item(row: Mapping[str, Any], render: Render) -> Item | None:
    if not isinstance(row, dict):
        raise TypeError("expected an object")
    turns: list[Message] = []
    reference, tools = None, None
    said = row.get("conversations")
    if isinstance(said, list) and said:
        turns = _turns(said)
        if turns:
            turns, reference = _without_answer(turns, said[-1], render)
        tools = row.get("tools")
    if not turns:
        user = row.get("user", "").strip()
        turns = [{"role": "user", "content": user}] if user else []
    if not turns:
        return None
    return Item(({"role": "system", "content": row.get("system")}, *turns), reference, tools)


def _without_answer(turns: list[Message], last: Mapping[str, Any], render: Render) -> tuple[list[Message], str | None]:
    """The turns before the row's own answer, and that answer.

    Odd and kept: the row's last message decides, also where it is blank and was left out of the turns; then the turn
    before it is cut off. The reference is the text with its white space.
    """
    if last["role"] == "assistant":
        return turns[:-1], last["content"]
    if last["role"] == "function_call":
        return turns[:-1], render(turns[-1])
    return turns, None


def _turns(said: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Messages as chat templates have them; blank ones and ones of other roles are left out."""
    turns: list[Message] = []
    pending: list[str] = []
    calls = 0
    for message in said:
        role, content = message.get("role", ""), message.get("content", "").strip()
        if not content:
            continue
        if role == "function_call":
            calls += 1
            turns.append(_call(content, f"call_{calls}", pending))
        elif role == "observation":
            turns.append({"role": "tool", "tool_call_id": pending.pop(0) if pending else "call_unknown",
                          "content": content})
        elif role in ("user", "assistant"):
            turns.append({"role": role, "content": content})
    return turns


def _call(content: str, call_id: str, pending: list[str]) -> Message:
    """A function call as an assistant's message; one that is not JSON is plain text."""
    try:
        call = json.loads(content, parse_constant=_no_constant)
    except json.JSONDecodeError:
        return {"role": "assistant", "content": content}
    pending.append(call_id)
    function = {"name": call.get("name", ""), "arguments": call.get("arguments", {})}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": call_id, "type": "function",
                                                                "function": function}]}


def context(messages: Sequence[Message]) -> str:
    """The conversation as a judge sees it.

    Odd and kept: a row without system text shows `None` there; tool results are not shown, and of function calls only
    the empty text is.
    """
    labels = {"system": "System", "user": "User", "assistant": "Assistant"}
    return "\n\n".join(f"{labels[one['role']]}: {one.get('content', '')}" for one in messages if one["role"] in labels)
