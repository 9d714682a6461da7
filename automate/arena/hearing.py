"""What a judge's reply says: its answer, its thoughts apart, and the verdict; and how it is asked for its last word.

Never sends anything, and never reads a verdict from a thought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from automate.arena.prompts import Message
from automate.arena.verdict import EMPTY, LABELS, STILL_THINKING, Said, Verdict, read_answer, take_apart
from automate.serving.client import Reply

CHOICES = tuple(f"[[{label}]]" for label in LABELS)
CONCLUDE = "State your final verdict now: reply with one of these labels and nothing else: " + ", ".join(CHOICES)
CONCLUDE_TAIL = 6000
CONCLUDE_TOKENS = 16
THINKER_TOKENS = 2048
"""Room for the last word of a judge that thinks: some can't be kept from it, and servers constrain only the answer."""

CONSTRAINT: Mapping[str, object] = {"structured_outputs": {"choice": list(CHOICES)}}
NO_THINKING: Mapping[str, object] = {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}
"""Switches of chat templates: Qwen's and others' name; DeepSeek's and Granite's. A template ignores one it lacks."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A reply taken apart. `headless`: it began inside a thought, which its chat template must have opened."""

    reply: Reply
    answer: str
    thoughts: str
    verdict: Verdict
    headless: bool = False

    @property
    def thinks(self) -> bool:
        """Whether the judge thought, or used up its tokens on something that the server doesn't show."""
        return bool(self.thoughts) or (self.reply.finish == "length" and not self.answer.strip())


def hear(reply: Reply, *, headless: bool = False, constrained: bool = False) -> Heard:
    """Read a reply. `headless`: this judge's replies begin inside a thought; `constrained`: it was given the choices.

    With a thought that was never closed, or cut off before its end, nothing of the reply is an answer.
    """
    said, beside = take_apart(reply.content), (reply.reasoning or "").strip()
    if headless and reply.finish == "length" and said.answer and not said.thoughts and not beside:
        said = Said("", said.answer.strip(), unclosed=True)
    if constrained and not said.answer.strip() and not said.unclosed and beside in CHOICES:
        said, beside = replace(said, answer=beside), ""  # servers are known to take a constrained answer for a thought
    thoughts = "\n".join(part for part in (beside, said.thoughts) if part)
    verdict = _silence(reply, thoughts, said.unclosed)
    if said.answer.strip() and not said.unclosed:
        verdict = read_answer(said.answer)
    return Heard(reply, said.answer, thoughts, verdict, said.headless)


def _silence(reply: Reply, thoughts: str, unclosed: bool) -> Verdict:
    """Why a reply without an answer has none."""
    at_limit = reply.finish == "length"
    if unclosed or (thoughts and at_limit):
        return Verdict(None, reason=STILL_THINKING + (" at the token limit" if at_limit else ""))
    if reply.refusal:
        return Verdict(None, reason=f"the judge refused to answer: {' '.join(reply.refusal.split())[:300]}")
    if reply.finish == "content_filter":
        return Verdict(None, reason="the judge's reply was withheld by a content filter")
    if thoughts:
        return Verdict(None, reason="the judge thought and gave no answer")
    return Verdict(None, reason=EMPTY + ("; it ended at the token limit" if at_limit else ""))


def follow_up(messages: Sequence[Message], said: str) -> list[Message]:
    """The messages that ask for the label only, after what the judge said or thought; bare where that is nothing.

    It stands there as plain text: chat templates drop thoughts of earlier turns, known by their tags and fields.
    """
    if said:
        return [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": CONCLUDE}]
    last = messages[-1]
    return [*messages[:-1], {"role": "user", "content": f"{last['content']}\n\n{CONCLUDE}"}]


def tail(heard: Heard) -> str:
    """The end of what the judge said, or else of what it thought, without tags."""
    text = heard.answer if heard.answer.strip() else heard.thoughts
    return text.replace("<think>", "").replace("</think>", "").strip()[-CONCLUDE_TAIL:].strip()
