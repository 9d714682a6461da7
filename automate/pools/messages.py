"""What a message is, in the shape that `ao.send` gives it, and when it is a proper one.

Never keeps a message and never decides who may send which."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import orjson

from automate.pools.jsontext import NAME_LENGTH, as_text, check_line, refuse
from automate.pools.jsontext import parse_json as parse_json

Via = Literal["local", "http", "process", "job", "clock"]
"""How a message came: this user's own command, HTTP, another process here, an evaluation job, the clock."""

MOST_TAGS = 64
TAG_LENGTH = 1024 * 1024
"""Of all tags of a message together, in characters."""
HTTP_TAG_LENGTH = 64 * 1024
"""The same, for what comes by HTTP."""
DATA_LENGTH = 256 * 1024 * 1024
_ROOT = frozenset({"Id", "From", "Owner", "Signature", "Target", "Tags", "Data", "Anchor", "Timestamp"})
_ANSWERS = ("-Response", "-Error", "-Notice")
_LATEST = 10**15
_TIME = re.compile(r"[0-9]{1,15}\Z", re.ASCII)


@dataclass(frozen=True)
class Message:
    """One message that was taken in: `id` is the hash of all that is signed, `sender` (From) is proven.

    tags: strings by name, Action among them; data: text, mostly JSON; anchor: what makes two equal messages different;
    timestamp: the sender's word, milliseconds since 1970, nothing rests on it.
    """

    id: str
    sender: str
    target: str
    tags: Mapping[str, str]
    data: str = ""
    anchor: str = ""
    timestamp: int = 0
    via: Via = "local"
    cause: str | None = None

    @property
    def action(self) -> str:
        return self.tags.get("Action", "")


@dataclass(frozen=True)
class Outgoing:
    """A message that a handler sends: to a process here, or to anybody's address. Tags without Action."""

    target: str
    action: str
    data: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Receipt:
    """What became of a message: `state` handled, refused (a reason that the sender can mend), failed (a fault of this
    program), delivered (to an address that is no process) or queued. `replies`: what was sent to its sender because of
    it, by whatever process, in order; each as `as_dict` gives it. `replayed`: it was known already and had no effect.
    """

    id: str
    state: str
    error: str | None
    replies: tuple[Mapping[str, object], ...] = ()
    replayed: bool = False


# --- a message ----------------------------------------------------------------------------------------
def _pairs(tags: object) -> Iterator[tuple[object, object]]:
    """Names and values of Tags: an array of {name, value}, or a map. Raises PoolError."""
    if isinstance(tags, Mapping):
        yield from tags.items()
    elif isinstance(tags, list):
        for entry in tags:
            if not isinstance(entry, Mapping) or set(entry) != {"name", "value"}:
                refuse("an entry of Tags is not {name, value}")
            yield entry["name"], entry["value"]
    elif tags is not None:
        refuse("Tags is neither an array of {name, value} nor a map")


def _tags_of(raw: Mapping[str, object], longest: int) -> dict[str, str]:
    """All tags, those at the root too. Raises PoolError."""
    found: dict[str, str] = {}
    for name, value in _pairs(raw.get("Tags")):
        if not isinstance(name, str):
            refuse("a tag's name is no text")
        if name in found:
            refuse(f"the tag {name[:NAME_LENGTH]!r} is there twice")
        found[name] = as_text(value, f"the tag {name[:NAME_LENGTH]!r}")
    for name, value in raw.items():
        if name not in _ROOT:
            text = as_text(value, f"the field {name[:NAME_LENGTH]!r}")
            if found.setdefault(name, text) != text:
                refuse(f"{name[:NAME_LENGTH]!r} is there twice, as a field and in Tags, with two values")
    _check_tags(found, longest)
    return found


def _check_tags(tags: Mapping[str, str], longest: int) -> None:
    if len(tags) > MOST_TAGS:
        refuse(f"more than {MOST_TAGS} tags")
    for name in tags:
        if not name or name in _ROOT:
            refuse("a tag without a name" if not name else f"{name!r} is a field of the message, not a tag")
        check_line(name, "a tag's name")
    if sum(map(len, tags.values())) > longest:
        refuse(f"tags of more than {longest} characters", "send long text as Data")
    if not tags.get("Action"):
        refuse("no Action", "say what is to be done: a tag Action, such as Transfer or Join-Pool")
    check_line(tags["Action"], "Action")


def _named(raw: Mapping[str, object], name: str) -> str:
    value = raw.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        refuse(f"{name} is no text")
    return check_line(value, name)


def _time(value: object) -> int:
    """Milliseconds, as a number or as its digits. Raises PoolError."""
    if value is None:
        return 0
    if isinstance(value, str) and _TIME.match(value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LATEST:
        refuse("Timestamp is not a whole number of milliseconds since 1970")
    return value


def normalised(raw: Mapping[str, object], via: Via = "local") -> Message:
    """A message from JSON, not proven yet. Takes Tags as an array of {name, value} or as a map, and, as ao.send does,
    any further root field as a tag (Action, Recipient, Quantity, X-...). Numbers become text, objects JSON.

    Raises PoolError: no Target, no Action, a tag twice, a tag or name that is no text, too deep or too long.
    """
    if not isinstance(raw, Mapping) or not all(isinstance(name, str) for name in raw):
        refuse("a message is a JSON object")
    target = _named(raw, "Target")
    if not target:
        refuse("no Target", "name the process that the message is for")
    given = raw.get("Data")
    data = "" if given is None else as_text(given, "Data")
    if len(data) > DATA_LENGTH:
        refuse(f"Data of more than {DATA_LENGTH} characters", "load a file with 'flock-hpc pool dataset create'")
    return Message(id=_named(raw, "Id"), sender=_named(raw, "From"), target=target, data=data,
                   tags=_tags_of(raw, HTTP_TAG_LENGTH if via == "http" else TAG_LENGTH), anchor=_named(raw, "Anchor"),
                   timestamp=_time(raw.get("Timestamp")))


def signed_text(message: Message) -> bytes:
    """What is hashed and signed: canonical JSON of From, Target, Anchor, Tags (sorted), Data, Timestamp."""
    return orjson.dumps({
        "From": message.sender, "Target": message.target, "Anchor": message.anchor,
        "Tags": [{"name": name, "value": message.tags[name]} for name in sorted(message.tags)],
        "Data": message.data, "Timestamp": message.timestamp}, option=orjson.OPT_SORT_KEYS)


def as_dict(message: Message) -> dict[str, object]:
    """The message as JSON: Id, From, Target, Action, Tags (array of {name, value}), Data, Anchor, Timestamp."""
    return {"Id": message.id, "From": message.sender, "Target": message.target, "Action": message.action,
            "Tags": [{"name": name, "value": value} for name, value in message.tags.items()],
            "Data": message.data, "Anchor": message.anchor, "Timestamp": message.timestamp}


# --- answers ------------------------------------------------------------------------------------------
def is_answer(message: Message) -> bool:
    """Whether a process here sent this as an answer, notice or error; such a message is never answered, so that two
    processes can't go on answering each other. People may be told of any mistake: they don't answer by themselves."""
    return message.via == "process" and (message.action.endswith(_ANSWERS) or "Message-Id" in message.tags)


def reply(message: Message, data: object, action: str | None = None, **tags: str) -> Outgoing:
    """An answer to a message's sender: Action `<Action>-Response` unless named, tag Message-Id, Data JSON (text as is).

    Keyword tags: `Message_Id="..."` becomes Message-Id.
    """
    named = {"Message-Id": message.id} | {name.replace("_", "-"): value for name, value in tags.items()}
    text = data if isinstance(data, str) else orjson.dumps(data).decode()
    return Outgoing(message.sender, action or f"{message.action}-Response", text, named)


def json_data(message: Message, *required: str) -> dict[str, object]:
    """Data as a JSON object with these fields. Raises PoolError naming the first that lacks, or where the JSON ends."""
    if not message.data.strip():
        refuse("no Data" + (f": it needs {', '.join(required)}" if required else ""), "send a JSON object as Data")
    found = parse_json(message.data)
    if not isinstance(found, dict):
        refuse("Data is not a JSON object", "send {...} as Data")
    for name in required:
        if name not in found:
            refuse(f"Data lacks the field {name!r}")
    return found
