"""Keys: who one is, what a signature covers, and which key files are never used."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from automate.errors import ConfigError, PoolError, StorageError
from automate.pools.keys import find_key, is_address, load_key, make_key, process_id, verified
from tests.unit.pool_support import named_key, pool_places

ANN = named_key("ann")
TAGS = {"Recipient": named_key("bob").address, "Quantity": "5", "X-Note": "it's"}


def signed(**change: object) -> dict[str, object]:
    return ANN.sign("token", "Transfer", "some data", TAGS, anchor="1", timestamp=2) | change


class TestSignature:
    def test_proves_who_sent_it(self) -> None:
        message = verified(signed(), "http")
        assert (message.sender, message.via, message.data) == (ANN.address, "http", "some data")
        assert message.tags == {**TAGS, "Action": "Transfer"}
        assert is_address(ANN.address)
        assert is_address(message.id)

    def test_an_anchor_makes_two_equal_messages_two(self) -> None:
        ids = {ANN.sign("token", "Balance", timestamp=1)["Id"] for _ in range(2)}
        assert len(ids) == 2
        assert signed()["Id"] == signed()["Id"]

    @pytest.mark.parametrize("change", [
        {"Data": "other data"}, {"Target": "pool"}, {"Anchor": "2"}, {"Timestamp": 3}, {"Quantity": "5000"},
        {"X-New": "1"}, {"Id": "A" * 43}, {"Id": None}, {"Id": ""}, {"From": named_key("bob").address}, {"From": None},
        {"Owner": None}, {"Owner": "short"}, {"Owner": "!" * 43}, {"Owner": 7}, {"Owner": "é" * 43},
        {"Owner": named_key("bob").sign("t", "a")["Owner"]}, {"Signature": None}, {"Signature": "A" * 86},
        {"Signature": named_key("bob").sign("token", "Transfer", "some data", TAGS)["Signature"]},
        {"Owner": "A" * 10**6}])
    def test_refuses_what_was_altered_or_forged(self, change: dict[str, object]) -> None:
        raw = signed()
        if "Quantity" in change:
            raw["Tags"] = [tag for tag in raw["Tags"] if tag["name"] != "Quantity"]  # type: ignore[attr-defined]
        with pytest.raises(PoolError):
            verified(raw | change, "http")

    def test_a_name_of_another_with_ones_own_key_is_refused(self) -> None:
        bob = named_key("bob")
        with pytest.raises(PoolError, match="From is not the address"):
            verified(bob.sign("token", "Transfer") | {"From": ANN.address}, "http")

    def test_another_encoding_of_the_signature_is_the_same_message(self) -> None:
        raw = signed()
        padded = base64.urlsafe_b64encode(base64.urlsafe_b64decode(str(raw["Signature"]) + "==")).decode()
        assert padded != raw["Signature"]
        assert verified(raw | {"Signature": padded}, "http") == verified(raw, "http")

    def test_a_signature_with_a_group_order_added_is_refused(self) -> None:
        raw = signed()
        data = base64.urlsafe_b64decode(str(raw["Signature"]) + "==")
        order = 2**252 + 27742317777372353535851937790883648493
        moved = data[:32] + (int.from_bytes(data[32:], "little") + order).to_bytes(32, "little")
        with pytest.raises(PoolError, match="signature"):
            verified(raw | {"Signature": base64.urlsafe_b64encode(moved).decode()}, "http")

    def test_shows_no_secret(self) -> None:
        secret = ANN._private.private_bytes_raw()
        assert secret.hex() not in repr(ANN)
        assert base64.urlsafe_b64encode(secret).decode()[:20] not in repr(signed())


class TestAddresses:
    def test_process_ids(self) -> None:
        assert is_address(process_id("a", "b"))
        assert len({process_id("a", "b"), process_id("ab"), process_id("a", "b", ""), process_id("a\0b")}) == 4

    @pytest.mark.parametrize("text", ["", "A" * 42, "A" * 44, "A" * 42 + "=", "é" * 43, "A" * 42 + "B", "+" * 43])
    def test_what_is_none(self, text: str) -> None:
        assert not is_address(text)


class TestFiles:
    def test_are_this_users_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "keys" / "me.pem"
        key = make_key(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert load_key(path).address == key.address
        assert [entry.name for entry in path.parent.iterdir()] == ["me.pem"]

    def test_are_never_written_over(self, tmp_path: Path) -> None:
        path = tmp_path / "me.pem"
        address = make_key(path).address
        with pytest.raises(ConfigError, match="never written over"):
            make_key(path)
        assert load_key(path).address == address

    def test_without_hard_links(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
        address = make_key(tmp_path / "me.pem").address
        with pytest.raises(ConfigError, match="never written over"):
            make_key(tmp_path / "me.pem")
        assert load_key(tmp_path / "me.pem").address == address
        assert stat.S_IMODE((tmp_path / "me.pem").stat().st_mode) == 0o600

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660])
    def test_open_to_others_are_not_used(self, tmp_path: Path, mode: int) -> None:
        path = tmp_path / "me.pem"
        make_key(path)
        path.chmod(mode)
        with pytest.raises(ConfigError, match=f"mode {mode:04o}"):
            load_key(path)

    def test_of_another_user_are_not_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "me.pem"
        make_key(path)
        other = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)
        with pytest.raises(ConfigError, match="belongs to another user"):
            load_key(path)

    def test_not_there_a_link_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="no such key"):
            load_key(tmp_path / "none.pem")
        make_key(tmp_path / "me.pem")
        (tmp_path / "link.pem").symlink_to(tmp_path / "me.pem")
        with pytest.raises(ConfigError, match="link"):
            load_key(tmp_path / "link.pem")
        with pytest.raises(ConfigError, match=r"not a file|can't read it"):
            load_key(tmp_path)

    def test_of_another_kind_are_not_used_and_not_quoted(self, tmp_path: Path) -> None:
        other = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        locked = ed25519.Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"))
        for text in (other, locked, b"", b"my password\n", locked[:60]):
            path = tmp_path / "key.pem"
            path.write_bytes(text)
            path.chmod(0o600)
            with pytest.raises(ConfigError, match="not an Ed25519 key") as caught:
                load_key(path)
            assert caught.value.__cause__ is None
            assert "my password" not in str(caught.value)

    def test_folder_that_cant_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StorageError):
            make_key(tmp_path / "file" / "me.pem")


class TestFind:
    def test_by_name_by_file_and_by_default(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        mine = make_key(places.key("default")).address
        bob = make_key(places.key("bob")).address
        assert find_key(places, None).address == mine
        assert find_key(places, "bob").address == bob
        assert find_key(places, str(places.key("bob"))).address == bob
        assert find_key(places, "./.flock-hpc/pools/keys/bob.pem").address == bob

    @pytest.mark.parametrize("name", ["", "..", ".x", "-x", "a\nb", "a\0b", "none", "../none", "x" * 300])
    def test_bad_names(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ConfigError):
            find_key(pool_places(tmp_path), name)
