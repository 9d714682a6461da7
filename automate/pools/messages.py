"""What a message is, in the shape that `ao.send` gives it, and when it is a proper one.

Never keeps a message and never decides who may send which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Via = Literal["local", "http", "process", "job", "clock"]
"""How a message came: this user's own command, HTTP, another process here, an evaluation job, the clock."""


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


def normalised(raw: Mapping[str, object]) -> Message:
    """A message from JSON, not proven yet. Takes Tags as an array of {name, value} or as a map, and, as ao.send does,
    any further root field as a tag (Action, Recipient, Quantity, X-...). Numbers become text, objects JSON.

    Raises PoolError: no Target, no Action, a tag twice, a tag or name that is no text, too deep or too long.
    """
    raise NotImplementedError


def signed_text(message: Message) -> bytes:
    """What is hashed and signed: canonical JSON of From, Target, Anchor, Tags (sorted), Data, Timestamp."""
    raise NotImplementedError


def as_dict(message: Message) -> dict[str, object]:
    """The message as JSON: Id, From, Target, Action, Tags (array of {name, value}), Data, Anchor, Timestamp."""
    raise NotImplementedError


def reply(message: Message, data: object, action: str | None = None, **tags: str) -> Outgoing:
    """An answer to a message's sender: Action `<Action>-Response` unless named, tag Message-Id, Data JSON (text as is).

    Keyword tags: `Message_Id="..."` becomes Message-Id.
    """
    raise NotImplementedError


def json_data(message: Message, *required: str) -> dict[str, object]:
    """Data as a JSON object with these fields. Raises PoolError naming the first that lacks, or where the JSON ends."""
    raise NotImplementedError
