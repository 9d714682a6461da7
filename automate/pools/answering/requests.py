"""What a line of work is as requests to an OpenAI-compatible server, and what the server's answers mean.

Never sends anything. Field names are vLLM's: structured_outputs (from 0.11 on), /tokenize, prompt_logprobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from automate.pools.round_records import LONGEST_PROMPT, Work
from automate.serving.client import Reply, TransportFailed

TEMPERATURE = 0.0
NO_THINKING: Mapping[str, object] = {"chat_template_kwargs": {"enable_thinking": False}}
"""An answer of few tokens has no room for thoughts; templates without this switch take no notice of it."""


@dataclass(frozen=True)
class Told:
    """What setMaxTokens and setSystemPrompt said of one worker; None: nothing."""

    max_tokens: int | None = None
    system_prompt: str | None = None

    @classmethod
    def of(cls, said: Mapping[str, object]) -> Told:
        """From round.json; what has another type counts as not said."""
        tokens, prompt = said.get("max_tokens"), said.get("system_prompt")
        return cls(tokens if type(tokens) is int and tokens > 0 else None, prompt if isinstance(prompt, str) else None)


NOTHING = Told()


def messages_of(work: Work, told: Told) -> list[Mapping[str, str]]:
    """The chat; a worker's own system prompt stands in the place of the data set's."""
    if told.system_prompt is None:
        return list(work.messages)
    rest = [one for one in work.messages if one.get("role") != "system"]
    return [{"role": "system", "content": told.system_prompt}, *rest]


def tokens_of(work: Work, told: Told, default: int) -> int:
    """How many tokens may be answered: by the worker's own setting, by the data set's, else `default`; never more than
    were paid for."""
    wanted = told.max_tokens or work.max_tokens or default
    return min(wanted, work.most_tokens or wanted)


def asked_otherwise(work: Work, messages: Sequence[Mapping[str, str]]) -> str | None:
    """The chat that was asked, as JSON, where it is not the line's own; of a very long one the system message alone,
    which is all that differs."""
    if list(messages) == list(work.messages):
        return None
    whole = orjson.dumps(list(messages))
    return (whole if len(whole) <= LONGEST_PROMPT else orjson.dumps(list(messages)[:1])).decode()


def extra_of(work: Work, *, switch: bool) -> dict[str, object]:
    """Further fields of a chat completion: one of the choices and nothing else; with `switch`, no thoughts."""
    choice = {"structured_outputs": {"choice": list(work.choices)}} if work.choices else {}
    return {**choice, **(NO_THINKING if switch else {})}


def said_in(reply: Reply, choices: Sequence[str]) -> str:
    """A reply's text. A choice that a server took for a thought is one all the same; no text is an empty one."""
    if not reply.content and reply.reasoning in choices:
        return str(reply.reasoning)
    return reply.content or ""


# --- log-likelihood -----------------------------------------------------------------------------------
def prefix_request(model: str, messages: Sequence[Mapping[str, str]], *, switch: bool) -> dict[str, object]:
    """/tokenize: the chat by the model's own template, up to where the assistant's answer begins."""
    return {"model": model, "messages": list(messages), "add_generation_prompt": True,
            **(NO_THINKING if switch else {})}


def option_request(model: str, text: str) -> dict[str, object]:
    """/tokenize: an option's own tokens, nothing before them."""
    return {"model": model, "prompt": text, "add_special_tokens": False}


def scoring_request(model: str, prefix: Sequence[int], options: Sequence[Sequence[int]]) -> dict[str, object]:
    """/v1/completions: every option as the answer that was given, for the log-probabilities of its tokens."""
    return {"model": model, "prompt": [[*prefix, *option] for option in options], "max_tokens": 1,
            "temperature": TEMPERATURE, "prompt_logprobs": 0}


def read_tokens(answer: object) -> list[int]:
    """The token ids of a /tokenize answer. Raises TransportFailed where it holds none."""
    tokens = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
        raise TransportFailed("the answer of /tokenize holds no tokens")
    return tokens


def read_scores(answer: object, prefix: int, options: Sequence[Sequence[int]]) -> tuple[float, ...]:
    """The sum of log-probabilities (natural) of each option's tokens, which stand behind `prefix` tokens.

    Raises TransportFailed where the answer lacks any.
    """
    try:
        if not isinstance(answer, dict):
            raise TypeError(type(answer).__name__)
        choices = sorted(answer["choices"], key=lambda one: int(one["index"]))
        return tuple(_sum(choice["prompt_logprobs"][prefix:], option)
                     for choice, option in zip(choices, options, strict=True))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise TransportFailed(f"the answer holds no log-probabilities of the options ({error!r})") from error


def _sum(places: Sequence[Mapping[str, Mapping[str, object]]], option: Sequence[int]) -> float:
    return sum(float(str(place[str(token)]["logprob"])) for place, token in zip(places, option, strict=True))


def best_of(scores: Sequence[float]) -> str:
    """The number of the most likely option, from 1 on, as text; the first among equals."""
    return str(1 + max(range(len(scores)), key=lambda number: (scores[number], -number)))
