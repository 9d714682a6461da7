"""Chat messages encoded once: the bytes that the judge is asked are those that the row holds later.

Never looks at what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import orjson

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Encoded:
    """The JSON of messages. With many games in flight this and not the texts is kept: it is half the memory,
    and what was just freed is still in the processor's cache when the next game is rendered."""

    json: bytes

    @classmethod
    def of(cls, messages: Sequence[Mapping[str, object]]) -> Encoded:
        """These messages."""
        return cls(orjson.dumps(messages))

    @property
    def fragment(self) -> orjson.Fragment:
        """What to put into a larger document in their place."""
        return orjson.Fragment(self.json)

    def messages(self) -> list[Message]:
        """The messages again."""
        return cast(list[Message], orjson.loads(self.json))
