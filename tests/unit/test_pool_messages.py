"""Messages: the shapes that are taken, those that are refused, and what is hashed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from automate.errors import PoolError
from automate.pools import messages
from automate.pools.messages import Message, as_dict, is_answer, json_data, normalised, parse_json, reply, signed_text

SPEC: dict[str, Any] = {"Target": "xU9zFkq3X2ZQ6olwNVvr1vUWIjc3kXTWr7xKQD6dh10", "Action": "Transfer",
                        "Recipient": "DLJoP8Xtdat6SKz3kqYGZPaa7DJBG6etF1jRLQCwquo", "Quantity": 1000,
                        "X-Dataset": "XUw5NtwUzk7hf_dE4ifEFD2rHfXffMLb8s2QfnZEvg4",
                        "X-Allocation": "ArithmeticDecrease"}


def with_data(data: str) -> Message:
    return Message("id", "from", "to", {"Action": "Join-Pool"}, data)


class TestNormalised:
    def test_takes_the_specs_own_payload(self) -> None:
        message = normalised(SPEC)
        assert message.target == SPEC["Target"]
        assert message.action == "Transfer"
        assert message.tags == {"Action": "Transfer", "Recipient": SPEC["Recipient"], "Quantity": "1000",
                                "X-Dataset": SPEC["X-Dataset"], "X-Allocation": "ArithmeticDecrease"}

    @pytest.mark.parametrize("tags", [{"Action": "Join-Pool", "X-A": "1"},
                                      [{"name": "Action", "value": "Join-Pool"}, {"value": 1, "name": "X-A"}]])
    def test_tags_as_map_or_array(self, tags: object) -> None:
        assert normalised({"Target": "pool", "Tags": tags}).tags == {"Action": "Join-Pool", "X-A": "1"}

    def test_what_it_gives_is_taken_again_without_change(self) -> None:
        message = normalised(SPEC | {"From": "me", "Anchor": "7", "Timestamp": 12, "Data": "é\n'\""})
        assert normalised(json.loads(json.dumps(as_dict(message)))) == message

    def test_data_that_is_an_object_becomes_json(self) -> None:
        message = normalised({"Target": "pool", "Action": "Join-Pool", "Data": {"dataset": "d", "n": [1, 2.5, None]}})
        assert json.loads(message.data) == {"dataset": "d", "n": [1, 2.5, None]}

    @pytest.mark.parametrize(("change", "words"), [
        ({"Target": None}, "no Target"), ({"Target": ""}, "no Target"), ({"Target": 7}, "Target is no text"),
        ({"Target": "a\nb"}, "control"), ({"Target": " a"}, "spaces"), ({"Target": "t" * 129}, "longer than 128"),
        ({"Action": ""}, "no Action"), ({"Action": "Trans\x1b[31mfer"}, "control"), ({"Action": "A" * 129}, "longer"),
        ({"Action": None}, "neither"), ({"Anchor": 5}, "Anchor is no text"),
        ({"Timestamp": -1}, "Timestamp"), ({"Timestamp": True}, "Timestamp"), ({"Timestamp": 1.5}, "Timestamp"),
        ({"Timestamp": 10**5000}, "Timestamp"), ({"Timestamp": "soon"}, "Timestamp"),
        ({"Quantity": 10**5000}, "digits"), ({"Quantity": float("nan")}, "no number"), ({"Quantity": None}, "neither"),
        ({"Data": "a\0b"}, "NUL"), ({"Data": "\ud800"}, "surrogate"), ({"Data": {"a": "\udfff"}}, "surrogate"),
        ({"X-\ud800": "1"}, "surrogate"), ({"": "1"}, "without a name"), ({"X": "v" * 1_100_000}, "tags of more"),
        ({"Tags": "Action"}, "neither an array"), ({"Tags": ["Action"]}, "{name, value}"),
        ({"Tags": [{"name": "X"}]}, "{name, value}"), ({"Tags": [{"name": 1, "value": "x"}]}, "name is no text"),
        ({"Tags": [{"name": "X", "value": "1"}] * 2}, "twice"),
        ({"Tags": [{"name": "Action", "value": "Mint"}]}, "twice"),
        ({"Tags": {"From": "me"}}, "a field of the message"),
        ({f"X-{number}": "1" for number in range(70)}, "more than 64 tags"),
    ])
    def test_refuses(self, change: dict[str, object], words: str) -> None:
        with pytest.raises(PoolError, match=words) as caught:
            normalised(SPEC | change)
        str(caught.value).encode()

    def test_refuses_depth(self) -> None:
        deep: object = "x"
        for _ in range(100):
            deep = [deep]
        with pytest.raises(PoolError, match="deeper than 64"):
            normalised(SPEC | {"Data": deep})

    def test_refuses_much_data(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(messages, "DATA_LENGTH", 10)
        with pytest.raises(PoolError, match="more than 10"):
            normalised(SPEC | {"Data": "x" * 11})


class TestSignedText:
    def test_does_not_hang_on_order_or_shape(self) -> None:
        other = {"Data": "", "Tags": [{"name": name, "value": str(value)} for name, value in reversed(SPEC.items())
                                      if name != "Target"], "Target": SPEC["Target"]}
        assert signed_text(normalised(SPEC)) == signed_text(normalised(other))

    @pytest.mark.parametrize("change", [
        {"From": "x"}, {"Target": "x"}, {"Anchor": "x"}, {"Data": "x"}, {"Timestamp": 1}, {"Quantity": "1001"},
        {"X-New": ""}])
    def test_hangs_on_every_part(self, change: dict[str, object]) -> None:
        assert signed_text(normalised(SPEC)) != signed_text(normalised(SPEC | change))

    def test_is_the_canonical_json_that_any_program_can_make(self) -> None:
        raw = {"Target": "é", "Action": "A", "Data": "\n\"\x1f\x7f小"}
        expected = {"Anchor": "", "Data": raw["Data"], "From": "", "Tags": [{"name": "Action", "value": "A"}],
                    "Target": "é", "Timestamp": 0}
        assert signed_text(normalised(raw)) == json.dumps(expected, ensure_ascii=False, separators=(",", ":"),
                                                          sort_keys=True).encode()


class TestAnswers:
    def test_reply(self) -> None:
        message = with_data("")
        answer = reply(message, {"ok": True}, Model_Id="m")
        assert (answer.target, answer.action, json.loads(answer.data)) == ("from", "Join-Pool-Response", {"ok": True})
        assert answer.tags == {"Message-Id": "id", "Model-Id": "m"}
        assert reply(message, "text", "Score-Response").data == "text"

    @pytest.mark.parametrize(("action", "tags", "answer"), [
        ("Score-Response", {}, True), ("Transfer-Error", {}, True), ("Credit-Notice", {}, True), ("Score", {}, False),
        ("Balance", {"Message-Id": "x"}, True)])
    def test_what_processes_never_answer(self, action: str, tags: dict[str, str], answer: bool) -> None:
        assert is_answer(Message("i", "f", "t", tags | {"Action": action}, via="process")) is answer
        assert not is_answer(Message("i", "f", "t", tags | {"Action": action}, via="http"))


class TestJson:
    def test_fields(self) -> None:
        assert json_data(with_data('{"dataset": "d", "model": 1}'), "dataset", "model") == {"dataset": "d", "model": 1}

    @pytest.mark.parametrize(("data", "words"), [
        ("", "no Data: it needs dataset, model"), ("{'dataset': 1}", "line 1, column 2"),
        ('{"dataset": "d",\n "model"', "line 2, column 9"), ("[1]", "not a JSON object"), ("7", "not a JSON object"),
        ('{"dataset": "d"}', "lacks the field 'model'"), ('{"dataset": "a", "dataset": "b", "model": 1}', "twice"),
        ('{"dataset": NaN, "model": 1}', "NaN"), ('{"dataset": 1e999, "model": 1}', "1e999"),
        ('{"dataset": "\\u0000", "model": 1}', "NUL"), ('{"dataset": "\\ud800", "model": 1}', "surrogate"),
        ('{"\\ud800": 1, "dataset": 1, "model": 1}', "surrogate"),
        ('{"dataset": ' + "9" * 5000 + ', "model": 1}', "too many digits"),
        ("[" * 100_000, "deeper"), ('{"dataset": ' + "[" * 80 + "]" * 80 + "}", "deeper than 64")])
    def test_refuses(self, data: str, words: str) -> None:
        with pytest.raises(PoolError, match=words):
            json_data(with_data(data), "dataset", "model")

    def test_keeps_whole_numbers_whole(self) -> None:
        assert parse_json('{"n": 123456789012345678901234567890}') == {"n": 123456789012345678901234567890}
