"""Templates by name: the markers between which the parts of a conversation stand, as the current client sets them.

Holds markers only. The default system texts of two templates come from the user's checkout of that client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from automate.validation.modules.base import InvalidConfigValueException


@dataclass(frozen=True)
class Template:
    """Formats with a field `content`; `assistant` may also have `stop_token`, the tokenizer's end of text.

    `system` None: the template has no place for one, and a row's is left out. `default_system` is used where a row
    has none; None: nothing is written then, not even the markers. `text_elsewhere`: `default_system` is not known
    here and must be read from a checkout.
    """

    name: str
    system: str | None
    user: str
    assistant: str
    observation: str
    tool: str = "{content}"
    call: str = "{content}"
    default_system: str | None = None
    text_elsewhere: bool = False


def _turns(name: str, system: str | None, before: str, after: str, answer: str) -> Template:
    """A template whose user's and tool's turns open alike but for `{role}`; `after` ends them and opens the answer."""
    user, tool = (before.replace("{role}", role) + "{content}" + after for role in ("user", "tool"))
    return Template(name, system=system, user=user, assistant="{content}" + answer, observation=tool)


_IM_OPEN, _IM_CLOSE = "<|im_start|>", "<|im_end|>"
_ANSWER = f"\n{_IM_OPEN}assistant\n"
_CHATML = Template(
    "yi",
    system=f"{_IM_OPEN}system\n{{content}}{_IM_CLOSE}\n",
    user=f"{_IM_OPEN}user\n{{content}}{_IM_CLOSE}{_ANSWER}",
    assistant=f"{{content}}{_IM_CLOSE}\n",
    observation=f"{_IM_OPEN}tool\n{{content}}<im_end>{_ANSWER}",  # no bars around im_end: so the client writes it
)
_INST = Template(
    "mistral",
    system="<s>",  # whatever the system text is, only this is written
    user="[INST]{content}[/INST]",
    assistant="{content}</s>",
    observation="{content}",
    default_system="",
)
_HEADER = "<|start_header_id|>{role}<|end_header_id|>\n\n"
_ZEPHYR = _turns("zephyr", "<|system|>\n{content}</s>", "<|{role}|>\n", "</s>\n<|assistant|>\n", "</s>\n")
_GEMMA = _turns("gemma", "<bos>", "<start_of_turn>{role}\n", "<end_of_turn>\n<start_of_turn>model\n",
                "<eos>\n")  # the answer ends with <eos>, not with <end_of_turn>
_LLAMA3 = _turns("llama3", "<|begin_of_text|>" + _HEADER.replace("{role}", "system") + "{content}<|eot_id|>",
                 _HEADER, "<|eot_id|>" + _HEADER.replace("{role}", "assistant"),
                 "<|eot_id|>")  # the text's beginning is marked in the system part only: without one, not at all
_PHI = _turns("phi3", None, "<|{role}|>\n", "<|end|>\n<|assistant|>", "<|end|>\n")
_DEFAULT = Template("default", system="System: {content}\n\n", user="User: {content}\nAssistant: ",
                    assistant="{content} {stop_token}", observation="Tool\n{content}\n")
_LLAMA2 = Template("llama2", system="<<SYS>>\n{content}\n<</SYS>>\n\n", user=_INST.user,
                   assistant="{content} </s>", observation="{content}", text_elsewhere=True)

TEMPLATES: Mapping[str, Template] = {template.name: template for template in (
    _DEFAULT,
    replace(_CHATML, name="qwen1.5", text_elsewhere=True),
    _CHATML,
    _ZEPHYR,
    _INST,
    replace(_INST, name="mixtral"),
    _LLAMA2,
    replace(_GEMMA, default_system=""),
    _LLAMA3,
    _PHI,
    replace(_PHI, name="phi4", tool="<|tool|>{content}<|/tool|>", call="<|tool_call|>{content}<|/tool_call|>"),
)}
"""By the names that an assignment's `base_model` may have."""


def find(name: str) -> Template:
    """The template of an assignment's `base_model`. Raises InvalidConfigValueException for an unknown name."""
    found = TEMPLATES.get(name)
    if found is None:
        raise InvalidConfigValueException(
            f"the assignment asks for the template {name[:80]!r}; known are {', '.join(TEMPLATES)}", cause="template")
    return found
