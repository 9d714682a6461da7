"""The pure half of the rehearsal judge: what it counts, refuses, answers and gets wrong, from the request alone.

Never reads a clock, a socket or a random number, so two judges always treat one request alike."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import orjson

from automate.serving.rehearsal_behaviour import LABEL_FAULTS, Behaviour, Fault

LABELS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")
START_A = "<|The Start of Assistant A's Answer|>"
END_A = "<|The End of Assistant A's Answer|>"
START_B = "<|The Start of Assistant B's Answer|>"
END_B = "<|The End of Assistant B's Answer|>"

BYTES_PER_REPLY_TOKEN = 4
TOKENS_PER_MESSAGE = 8
TOKENS_PER_PROMPT = 16
_CLOSE, _CLEAR = 0.12, 0.5
_OPENING = "Rehearsal verdict; it means nothing."
_UNDECIDED = "Both answers were only hashed, and neither is preferred here."
_WRONG = (
    "My final verdict is: [[C]]",
    "The loop in the first answer reads arr[b] = grid[[0]][a], which decides it.",
)
_TRANSIENT = (Fault.STATUS_429, Fault.STATUS_500, Fault.HANG, Fault.DROP, Fault.EMPTY)


class RequestRefusedError(Exception):
    """A request that gets an error in OpenAI's form instead of a completion."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message, self.param, self.status = message, param, status


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What matters of one chat completion request. `thinking`: not switched off; `switched`: the template is told.

    `model`: who is asked, where that is not the server's own model; `stream`, `usage`: piece by piece, with a count.
    """

    texts: tuple[str, ...]
    max_tokens: int | None
    choices: tuple[str, ...]
    thinking: bool = True
    switched: bool = False
    model: str = ""
    stream: bool = False
    usage: bool = False

    @property
    def is_probe(self) -> bool:
        """A request for one token of anything only asks whether the judge answers; faults leave it alone."""
        return self.max_tokens is not None and self.max_tokens <= 1 and not self.choices


@dataclass(frozen=True, slots=True)
class Reply:
    """What the judge says, and what it costs."""

    content: str | None
    tokens: int
    finish_reason: str
    reasoning: str | None = None
    refusal: str | None = None


# --- reading a request ------------------------------------------------------------------------


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a request's body."""
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestRefusedError(f"the body is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise RequestRefusedError("the body is not a JSON object")
    return payload


def texts_of(messages: object) -> tuple[str, ...]:
    """The text of each message, whose content is a string, null or a list of parts."""
    if not isinstance(messages, list) or not messages:
        raise RequestRefusedError("messages must be a list that is not empty", "messages")
    return tuple(_text_of(message) for message in messages)


def _text_of(message: object) -> str:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestRefusedError("each message must be an object with a role", "messages")
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        raise RequestRefusedError("the content of a message must be text", "messages")
    return "".join(part["text"] for part in parts)


def read_chat(body: bytes, model: str, also: Collection[str] = ()) -> ChatRequest:
    """One chat completion request for this model, or for one that is served beside it."""
    payload = read_object(body)
    if payload.get("model", model) != model and payload.get("model") not in also:
        raise RequestRefusedError(f"The model `{payload['model']}` does not exist.", "model", 404)
    stream, options = payload.get("stream") or False, payload.get("stream_options")
    if not isinstance(stream, bool):
        raise RequestRefusedError("stream must be true or false", "stream")
    if options is not None and not (stream and isinstance(options, dict)):
        raise RequestRefusedError("stream_options is an object that goes with stream", "stream_options")
    most = payload.get("max_completion_tokens")
    if most is None:
        most = payload.get("max_tokens")
    if most is not None and (not isinstance(most, int) or most < 1):
        raise RequestRefusedError(f"max_tokens must be a number of at least 1, not {most}", "max_tokens")
    switches = payload.get("chat_template_kwargs")
    off = isinstance(switches, dict) and switches.get("enable_thinking") is False
    return ChatRequest(texts_of(payload.get("messages")), most, _choices(payload), not off, switches is not None,
                       str(payload.get("model", model)), stream, bool((options or {}).get("include_usage")))


def _choices(payload: dict[str, Any]) -> tuple[str, ...]:
    structured = payload.get("structured_outputs")
    asked = structured.get("choice") if isinstance(structured, dict) else payload.get("guided_choice")
    if asked is None:
        return ()
    if not isinstance(asked, list) or not asked or not all(isinstance(choice, str) for choice in asked):
        raise RequestRefusedError("choice must be a list of strings that is not empty", "structured_outputs")
    return tuple(asked)


def size_of(text: str) -> int:
    """Its length in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode())


def count_chat(texts: Sequence[str], bytes_per_token: float) -> int:
    """Tokens of a prompt made of these messages."""
    content = math.ceil(sum(map(size_of, texts)) / bytes_per_token)
    return content + TOKENS_PER_MESSAGE * len(texts) + TOKENS_PER_PROMPT


def check_room(prompt_tokens: int, max_tokens: int | None, context: int) -> None:
    """Refuse what does not fit the context, as vLLM does."""
    if prompt_tokens >= context:
        raise RequestRefusedError(
            f"This model's maximum context length is {context} tokens. However, your request has"
            f" {prompt_tokens} input tokens.", "input_tokens")
    if prompt_tokens + (max_tokens or 0) > context:
        raise RequestRefusedError(
            f"'max_tokens' or 'max_completion_tokens' is too large: {max_tokens}. This model's maximum"
            f" context length is {context} tokens and your request has {prompt_tokens} input tokens.", "max_tokens")


# --- what chance decides, by hashes -------------------------------------------------------------


def digest(data: bytes) -> bytes:
    """A short stable name for these bytes."""
    return blake2b(data, digest_size=16).digest()


def prompt_key(texts: Sequence[str]) -> bytes:
    """A short stable name for a prompt."""
    return digest("\0".join(texts).encode())


def draw(key: bytes, purpose: str) -> float:
    """A number in [0, 1) that depends on the key and the purpose only."""
    hashed = blake2b(key, digest_size=6, person=purpose.encode()).digest()
    return int.from_bytes(hashed, "big") / (1 << 48)


def pick(behaviour: Behaviour, names: Sequence[str], at: float) -> str | None:
    """The fault on whose share of the way from 0 to 1 `at` falls."""
    for name in names:
        at -= behaviour.share(name)
        if at < 0:
            return name
    return None


def choose_fault(behaviour: Behaviour, prompt: bytes, body: bytes) -> Fault | None:
    """The fault that a first try meets; each one's share is of all first tries."""
    if draw(prompt, "refusal") < behaviour.status_400:
        return Fault.STATUS_400
    at = draw(body, "transient") * (1 - behaviour.status_400)
    name = pick(behaviour, [fault.value for fault in _TRANSIENT], at)
    return None if name is None else Fault(name)


# --- the verdict ----------------------------------------------------------------------------------


def score(text: str) -> float:
    """A number that means nothing, from one answer's hash and length."""
    data = text.strip().encode()
    return draw(data, "score") + 0.1 * math.log2(1 + len(data))


def compare(answer_a: str, answer_b: str) -> str:
    """The label for two answers; swapping them gives the mirrored label."""
    gap = score(answer_a) - score(answer_b)
    if abs(gap) < _CLOSE:
        return "A=B"
    if abs(gap) < _CLEAR:
        return "A>B" if gap > 0 else "B>A"
    return "A>>B" if gap > 0 else "B>>A"


def find_answers(text: str) -> tuple[str, str] | None:
    """The two answers between Arena-Hard's markers, or None where there are none."""
    first, rest = text.find(START_A), text.find(START_B)
    if first < 0 or rest < 0:
        return None
    end_a, end_b = text.find(END_A, first), text.find(END_B, rest)
    if end_a < 0 or end_b < 0:
        return None
    return text[first + len(START_A) : end_a], text[rest + len(START_B) : end_b]


def verdict(texts: Sequence[str]) -> str:
    """The label for a prompt, from its two answers, or from all of it where it has none."""
    answers = next(filter(None, map(find_answers, texts)), None)
    if answers is not None:
        return compare(*answers)
    return LABELS[int(draw(prompt_key(texts), "label") * len(LABELS))]


def fitting_choice(choices: Sequence[str], label: str) -> str:
    """The choice that carries this label, else the first."""
    return next((one for one in choices if one.strip() == label or f"[[{label}]]" in one), choices[0])


def reply_text(behaviour: Behaviour, request: ChatRequest) -> str:
    """What the judge says, without its thoughts; a probe's reply is never wrong."""
    if behaviour.answers:
        chosen = bool(request.choices) and not behaviour.ignore_structured
        return chosen_answer(request) if chosen else answer_text(request)
    label = verdict(request.texts)
    if request.choices and not behaviour.ignore_structured:
        return fitting_choice(request.choices, label)
    if request.is_probe:
        return _verdict_text(label)
    prompt = prompt_key(request.texts)
    fault = pick(behaviour, LABEL_FAULTS, draw(prompt, "label fault"))
    if fault == "no_label":
        return f"{_OPENING} {_UNDECIDED}"
    if fault == "wrong_label":
        return f"{_OPENING} {_WRONG[prompt[0] % 2]}"
    return _verdict_text(label[0] if fault == "short_label" else label)


def chosen_answer(request: ChatRequest) -> str:
    """Which of the choices a candidate takes: other for each prompt and each model."""
    key = prompt_key((*request.texts, request.model))
    return request.choices[int(draw(key, "choice") * len(request.choices))]


def answer_text(request: ChatRequest) -> str:
    """What a candidate says: text with headings, lists and bold words, other for each prompt and each model."""
    key = prompt_key((*request.texts, request.model))
    sentence = "This stands where a model's answer would stand."
    parts = [f"Rehearsed answer {key.hex()[:8]}; it means nothing."]
    parts += [f"## Part {number}\n\n{' '.join([sentence] * (1 + key[number] % 4))}" for number in range(1, key[0] % 4)]
    if draw(key, "list") < 0.5:
        parts.append("\n".join(f"- **Point {number}**: {sentence}" for number in range(1, 2 + key[5] % 4)))
    return "\n\n".join(parts)


def _verdict_text(label: str) -> str:
    return f"{_OPENING} Longer or shorter, both answers were only hashed. My final verdict is: [[{label}]]"


def cut(text: str, max_tokens: int | None) -> Reply:
    """The reply that fits max_tokens."""
    data = text.encode()
    tokens = -(-len(data) // BYTES_PER_REPLY_TOKEN)
    if max_tokens is None or tokens <= max_tokens:
        return Reply(text, tokens, "stop")
    kept = data[: max_tokens * BYTES_PER_REPLY_TOKEN].decode(errors="ignore")
    return Reply(kept, max_tokens, "length")


def pretend(behaviour: Behaviour, request: ChatRequest, reply: Reply) -> Reply:
    """The reply counted as long as a real judge's, where that is asked for; a probe's and a choice's stay short."""
    if behaviour.reply_tokens is None or request.is_probe or request.choices or reply.finish_reason != "stop":
        return reply
    tokens = round(behaviour.reply_tokens * (0.5 + draw(prompt_key(request.texts), "length")))
    return replace(reply, tokens=max(1, min(tokens, request.max_tokens or tokens)))
