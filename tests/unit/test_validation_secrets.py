"""Keys are read, taken out of texts in every spelling, and not inherited."""

from __future__ import annotations

import base64
import subprocess
import sys
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automate.errors import ConfigError
from automate.validation.secrets import REMOVED, looks_secret, read_key, scrub, without_secrets

KEY = "flk/Secret+key=\"1'&% end"
URL = ("https://files.example/set.jsonl?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAEXAMPLE%2F2026&"
       "X-Amz-Date=20261121T150000Z&X-Amz-Expires=3600&X-Amz-Security-Token=tok%2Fen&X-Amz-Signature=deadbeef")


def test_a_key_is_read_without_spaces_at_its_ends() -> None:
    assert read_key({"K": "  abc\n"}, "K") == "abc"
    assert read_key({"K": " \t"}, "K") is None
    assert read_key({}, "K") is None


@pytest.mark.parametrize("bad", ["abc\ndef", "abc\x00", "ab\x1bc", "schlüssel", "a\u2028b"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(bad: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_key({"K": bad}, "K")
    assert bad not in str(caught.value) and bad[:2] not in caught.value.what.split()
    assert "K" in str(caught.value)


@pytest.mark.parametrize("form", [KEY, quote(KEY, safe=""), quote(quote(KEY, safe=""), safe=""),
                                  KEY.replace('"', '\\"'), base64.b64encode(KEY.encode()).decode()])
def test_a_secret_goes_in_every_spelling(form: str) -> None:
    text = scrub(f"before {form} after", [KEY])
    assert form not in text and text.startswith("before [removed]") and text.endswith(" after")


def test_signatures_of_addresses_go_and_the_rest_stays() -> None:
    text = scrub(URL, [])
    for gone in ("AKIAEXAMPLE", "tok%2Fen", "deadbeef"):
        assert gone not in text
    assert "X-Amz-Date=20261121T150000Z" in text and "X-Amz-Expires=3600" in text
    assert "deadbeef" not in scrub(quote(URL, safe=""), []) and "AKIA" not in scrub(quote(URL, safe=""), [])
    escaped = scrub('{"url": "' + URL.replace("&", "\\u0026") + '"}', [])
    assert "deadbeef" not in escaped and escaped.endswith('"}')


def test_members_that_hold_secrets_go() -> None:
    text = scrub('{"secret_key": "abc", "access_key":"def", "token": "ghi", "tokenizer": "kept", '
                 '"training_set_key": "sets/a", "nested": "{\\"password\\": \\"jkl\\"}"}', [])
    assert not any(f'"{gone}"' in text for gone in ("abc", "def", "ghi")) and "jkl" not in text
    assert '"tokenizer": "kept"' in text and "sets/a" in text


def test_tokens_of_the_hub_go_without_being_named() -> None:
    assert scrub("hf_" + "a1" * 17, []) == REMOVED
    assert scrub("hf_model_name", []) == "hf_model_name"


def test_a_short_value_does_not_eat_the_text() -> None:
    assert scrub("a key", ["a", "", "  "]) == "a key"


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=40), st.text(max_size=60))
def test_no_secret_is_left(secret: str, around: str) -> None:
    clean = scrub(around + secret + around, [secret])
    assert secret not in clean.replace(REMOVED, "\n")


@pytest.mark.parametrize("name", ["FLOCK_API_KEY", "HF_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD",
                                  "my_token", "GITHUB_PAT", "GOOGLE_APPLICATION_CREDENTIALS", "SSH_AUTH_SOCK",
                                  "HF_TOKEN_PATH", "SLURM_JWT", "APIKEY", "WANDB_APIKEY"])
def test_names_of_secrets(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize("name", ["PATH", "HOME", "TOKENIZERS_PARALLELISM", "KEYBOARD", "PWD", "OLDPWD", "SLURM_JOB_ID",
                                  "CUDA_VISIBLE_DEVICES", "LESSKEYIN", "MONKEY", "COMPASS"])
def test_names_of_other_things(name: str) -> None:
    assert not looks_secret(name)


def test_a_child_inherits_no_secret() -> None:
    environ = {"PATH": "/bin", "FLOCK": "the-key-itself", "COPY": "x the-key-itself y", "QUOTED": "the%2Dkey",
               "MY_TOKEN": "other", "HOME": "/home", "ONE": "1", "N": "1"}
    assert without_secrets(environ, ["FLOCK", "N", "NOT_THERE"]) == {
        "PATH": "/bin", "HOME": "/home", "ONE": "1", "QUOTED": "the%2Dkey"}


def test_only_the_standard_library_is_needed() -> None:
    code = ("import sys; import automate.validation.secrets as s; "
            "bad = {'requests', 'orjson', 'pydantic', 'yaml'} & set(sys.modules); sys.exit(str(bad) if bad else 0)")
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
