"""Chat messages that are encoded once: the bytes of the request are those of the row that is written later.

Never looks at what they say."""

from __future__ import annotations

from functools import cached_property

import orjson


class Messages(list[dict[str, str]]):
    """Messages of one request, not to be changed once `encoded` was read."""

    @cached_property
    def encoded(self) -> orjson.Fragment:
        """Their JSON, which orjson puts in as it is wherever it stands for them."""
        return orjson.Fragment(orjson.dumps(self))
