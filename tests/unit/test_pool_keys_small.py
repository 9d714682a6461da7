"""Keys that belong to nobody: a signature by a point of small order stands for any message."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace

import pytest

from automate.errors import PoolError
from automate.pools.keys import has_small_order, verified
from automate.pools.messages import as_dict, normalised, signed_text
from tests.unit.pool_support import named_key

PRIME = 2**255 - 19
# The seven y of C2SP's and libsodium's lists: 0, 1, -1, those of order 8, and what is the same modulo the prime.
EIGHT = ["26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
         "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"]
POINTS = [*map(bytes.fromhex, EIGHT), *(number.to_bytes(32, "little") for number in (
    0, 1, PRIME - 1, PRIME, PRIME + 1))]


def text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed_by_nobody(public: bytes, signature: bytes) -> dict[str, object]:
    sender = text_of(hashlib.sha256(public).digest())
    message = normalised({"From": sender, "Target": "token", "Tags": {"Action": "Balance"}, "Anchor": "a"})
    message = replace(message, id=text_of(hashlib.sha256(signed_text(message) + public).digest()))
    return as_dict(message) | {"Owner": text_of(public), "Signature": text_of(signature)}


@pytest.mark.parametrize("sign", [0, 0x80])
@pytest.mark.parametrize("point", POINTS, ids=bytes.hex)
def test_every_point_of_small_order_is_refused(point: bytes, sign: int) -> None:
    public = point[:31] + bytes([point[31] | sign])
    assert has_small_order(public)
    with pytest.raises(PoolError, match="anybody can sign for"):
        verified(signed_by_nobody(public, public + bytes(32)), "http")


def test_the_signature_of_nobody_is_not_taken() -> None:
    """Key and R the neutral point, S zero: the equation S B = R + k A holds for whatever was signed."""
    neutral = bytes([1]) + bytes(31)
    with pytest.raises(PoolError, match="anybody can sign for"):
        verified(signed_by_nobody(neutral, neutral + bytes(32)), "http")


def test_other_keys_are_taken() -> None:
    for name in ("ann", "bob", "cleo"):
        raw = named_key(name).sign("token", "Balance", anchor="1", timestamp=1)
        assert verified(raw, "http").sender == named_key(name).address
    assert not any(has_small_order(number.to_bytes(32, "little")) for number in range(2, 100))
