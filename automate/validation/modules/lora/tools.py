"""Tools and calls of a row as text, label for label as the current client writes them.

Pure functions over parsed JSON; the prompt around the tools comes from `checkout`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def _argument(name: str, field: Mapping[str, Any], required: bool) -> str:
    choices = f", should be one of [{', '.join(field['enum'])}]" if field.get("enum") else ""
    items = f", where each item should be {field['items'].get('type', '')}" if field.get("items") else ""
    kind = f"{field.get('type', '')}{', required' if required else ''}"
    return f"  - {name} ({kind}): {field.get('description', '')}{choices}{items}\n"


def _tool(tool: Mapping[str, Any]) -> str:
    parameters = tool["parameters"]
    needed = parameters.get("required", [])
    arguments = "".join(_argument(name, field, name in needed) for name, field in parameters["properties"].items())
    return f"> Tool Name: {tool['name']}\nTool Description: {tool.get('description', '')}\nTool Args:\n{arguments}\n"


def tools_text(tools: list[Mapping[str, Any]], prompt: str) -> str:
    """The text of a row's tools in `prompt`. Raises KeyError, TypeError and the like for a broken list."""
    return prompt.format(tool_text="".join(_tool(tool) for tool in tools),
                         tool_names=", ".join(tool["name"] for tool in tools))


def calls_text(calls: Any) -> str:
    """The text of one call or a list of them; "" for none. Raises ValueError for a broken one."""
    if not calls:
        return ""
    texts = []
    for call in calls if isinstance(calls, list) else [calls]:
        if not isinstance(call, dict) or "name" not in call or "arguments" not in call:
            raise ValueError("a function call needs a name and arguments")
        texts.append(f"Action: {call['name']}\nAction Input: {json.dumps(call['arguments'], ensure_ascii=False)}\n")
    return "\n".join(texts) + "\n"
