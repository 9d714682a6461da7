"""Secrets planted in settings, environment, logs, scripts and names are in no bundle; the bundle is what it says."""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
from pathlib import Path
from urllib.parse import quote

import pytest

from automate.campaign.keeping.bundle import FOLDER, Bundle, fit, log_end, make_bundle, pack
from automate.campaign.keeping.redact import (
    REMOVED,
    Redactor,
    kept_secrets,
    looks_secret,
    secret_values,
    suspicious_lines,
)
from automate.campaign.keeping.setup_lines import cleaned
from automate.errors import StorageError

OWN = "correct horse/battery+staple"
KEPT = "wj8-Key'with\"quotes$9"
SHORT = "pw7x"
HUB = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
PAID = "sk-proj-abcDEF1234567890xyz"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
PASSWORD = "hunter2-in-a-url"
PRIVATE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7"
SECRETS = [OWN, KEPT, SHORT, HUB, PAID, JWT, PASSWORD, PRIVATE, quote(OWN, safe=""),
           base64.b64encode(OWN.encode()).decode()]
QUESTION, ANSWER = "Which of the seven bridges of Koenigsberg", "None of them can be crossed twice, as Euler showed"


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A workspace with a secret in every kind of file that a bundle holds, and in a file's name."""
    root = tmp_path / "campaign"
    texts = {
        "flock-hpc.yaml": f"cluster: local\nbaseline: base\njudge: {{kind: rehearsal}}\nenvironment:\n  ODD: {HUB}\n"
                          f"  PROXY: http://me:{PASSWORD}@proxy:3128\n",
        "arena_hard_models_to_test.txt": "model-a\n",
        ".flock-hpc/secrets/OPENAI_API_KEY": KEPT,
        ".flock-hpc/secrets/notes.txt": "",
        ".flock-hpc/runs/r1.json": f'{{"error": "401 for Authorization: Bearer {PAID}", "phase": "ended"}}',
        ".flock-hpc/plans/20260101_000000.json":
            f'{{"settings": {{"x": "{base64.b64encode(OWN.encode()).decode()}"}}}}',
        ".flock-hpc/submissions/s.json": f'{{"refused": "token={quote(OWN, safe="")}"}}',
        "templates/own.sh.j2": f"export API_TOKEN='{KEPT}'\n",
        "profiles/own.yaml": f"hf_token: |\n  {HUB}\n",
        "generated_judgment_scripts/run.sh": f"#!/bin/bash\nexport MY_PASSWORD={SHORT}\nserve --hf-token {HUB} --x 1\n",
        "generated_judgment_configs/b.yaml": f"args:\n- --api-key\n- {OWN}\napi_key: {PAID}\n",
        "logs/arena-hard/judgment_batches/b_1.out":
            f"INFO {JWT} said hello\n-----BEGIN RSA PRIVATE KEY-----\n{PRIVATE}\n-----END RSA PRIVATE KEY-----\n"
            f"INFO Received request chatcmpl-1: prompt: '{QUESTION}? {ANSWER}', params\nGET /?sig={PASSWORD}&a=1\n",
        f"logs/arena-hard/judgment_batches/{HUB}.err": "short\n",
        "arena-hard-auto/data/arena-hard-v2.0/question.jsonl":
            f'{{"uid": "q1", "category": "hard_prompt", "prompt": "{QUESTION}"}}\n',
        "arena-hard-auto/data/arena-hard-v2.0/model_answer/model-a.jsonl": f'{{"uid": "q1", "answer": "{ANSWER}"}}\n',
        "arena-hard-auto/data/arena-hard-v2.0/model_judgment/j/model-a.jsonl": f'{{"judgment": "{ANSWER}"}}\n',
        ".flock-hpc/journal/arena-hard-v2.0/j/base/model-a/x.jsonl": f'{{"judgment": "{ANSWER}"}}\n',
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def environment() -> dict[str, str]:
    return {"SOME_TOKEN": OWN, "DB_PASSWORD": SHORT, "PATH": "/usr/bin", "HF_HOME": "/somewhere", "HF_TOKEN": HUB}


def bundled(root: Path, target: Path, most: int = 20_000_000) -> tuple[Bundle, dict[str, str]]:
    made = make_bundle(root, target, lines=100, most=most, environ=environment())
    with tarfile.open(target) as tar:
        found = {member.name: (tar.extractfile(member) or io.BytesIO()).read().decode() for member in tar}
    return made, found


def test_no_secret_is_in_any_file_or_name(planted: Path, tmp_path: Path) -> None:
    made, found = bundled(planted, tmp_path / "b.tar.gz")
    whole = gzip.decompress((tmp_path / "b.tar.gz").read_bytes())
    for secret in SECRETS:
        where = [name for name, text in found.items() if secret in text or secret in name]
        assert not where, f"{secret} is in {where}"
        assert secret.encode() not in whole
    assert made.removed >= 12


def test_what_is_no_secret_stays(planted: Path, tmp_path: Path) -> None:
    found = bundled(planted, tmp_path / "b.tar.gz")[1]
    settings = found[f"{FOLDER}/settings/flock-hpc.yaml"]
    assert "cluster: local" in settings and f"http://{REMOVED}@proxy:3128" in settings
    assert f"serve --hf-token {REMOVED} --x 1" in found[f"{FOLDER}/scripts/run.sh"]
    assert "said hello" in found[f"{FOLDER}/logs/b_1.out"]
    assert '"max_tokens": 4096' in found[f"{FOLDER}/settings/resolved.json"]
    assert "HF_HOME=/somewhere" in found[f"{FOLDER}/versions.txt"]
    assert '"mark": "ok"' in found[f"{FOLDER}/doctor.json"]


def test_no_question_answer_or_judgment_is_in_it(planted: Path, tmp_path: Path) -> None:
    found = bundled(planted, tmp_path / "b.tar.gz")[1]
    for text in found.values():
        assert QUESTION not in text and ANSWER not in text
    assert "model-a.jsonl" in found[f"{FOLDER}/files.txt"]


def test_a_workspace_with_broken_settings_is_packed_with_the_reason(planted: Path, tmp_path: Path) -> None:
    (planted / "flock-hpc.yaml").write_text(f"batchsize: 3\nhf_token: {HUB}\n")
    found = bundled(planted, tmp_path / "b.tar.gz")[1]
    assert "batchsize" in found[f"{FOLDER}/problem.txt"]
    assert not any(HUB in text for text in found.values())
    assert f"{FOLDER}/logs/b_1.out" in found


def test_it_keeps_to_its_size_and_names_what_is_left_out(planted: Path, tmp_path: Path) -> None:
    (planted / "generated_judgment_scripts" / "large.sh").write_text("x y " * 60_000)
    made, found = bundled(planted, tmp_path / "b.tar.gz", most=200_000)
    assert sum(len(text) for text in found.values()) < 220_000
    assert any("scripts/large.sh" in note for note in made.notes)
    assert "scripts/large.sh" in found[f"{FOLDER}/CONTENTS.txt"]


def test_a_file_that_is_there_is_not_overwritten(planted: Path, tmp_path: Path) -> None:
    target = tmp_path / "b.tar.gz"
    target.write_text("mine")
    with pytest.raises(StorageError, match="already"):
        bundled(planted, target)
    assert target.read_text() == "mine"


def test_the_same_texts_give_the_same_bytes() -> None:
    parts = [("a/b.txt", "one\n"), ("c.txt", "two\n")]
    assert pack(parts) == pack(parts)


def test_names_that_meet_are_told_apart() -> None:
    kept, left = fit([("a", "1"), ("a", "2"), ("b", "3" * 50)], 10)
    assert kept == [("a", "1"), ("a.2", "2")] and left == ["b"]


@pytest.mark.parametrize("name", ["HF_TOKEN", "OPENAI_API_KEY", "MY_PASSWORD", "WANDB_KEY", "X_SECRET_Y", "GH_PAT"])
def test_names_of_secrets(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize("name", ["PATH", "PWD", "SSH_AUTH_SOCK", "TOKENIZERS_PARALLELISM", "HOME", "MONKEY",
                                  "SECRETS_DIR", "KEYBOARD"])
def test_names_of_no_secrets(name: str) -> None:
    assert not looks_secret(name)


@pytest.mark.parametrize("text", [
    "max_tokens: 4096", "api_key_env: OPENAI_API_KEY", "--max-num-batched-tokens 8192", "prompt_tokens=12",
    "tokenizer: /models/x", "hf_transfer is on", "job task-runner-12345678 ended", "api_key: null",
    "http://host:8000/v1 answers", "see alice@example.org"])
def test_what_only_looks_alike_stays(text: str) -> None:
    assert Redactor(set())(text) == text


@pytest.mark.parametrize("text", [
    'api_key: "a b c"', "password = zebra99", "--token zebra99", "--hf-token=zebra99", '"apiKey": "zebra99"',
    r'{\"api_key\": \"zebra99\"}', "Authorization: Basic zebra99zebra99", "https://zebra99@host/x",
    "ghp_zebra99zebra99zebra99", "ACCESS_KEY=zebra99", "[--api-key, zebra99]", "token: >-\n  zebra99"])
def test_what_looks_like_a_secret_goes(text: str) -> None:
    assert "zebra99" not in Redactor(set())(text) and "a b c" not in Redactor(set())(text)


def test_plain_values_are_not_taken_for_secrets(tmp_path: Path) -> None:
    assert secret_values({"A_TOKEN": "true", "B_KEY": "12", "C_KEY": "abc", "D_KEY": "abcd"}) == {"abcd"}
    assert kept_secrets(tmp_path / "none") == set()


def test_only_the_end_of_a_log_is_taken_and_long_lines_are_cut(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {n}\n" for n in range(50)) + "y" * 2000 + "\n")
    lines = log_end(log, 3).split("\n")
    assert lines[0] == "line 48" and lines[2] == "y" * 500 + " [cut]"


@pytest.mark.parametrize("text", [
    "export WANDB_KEY=zebra99", "export MYSQL_PWD=zebra99", "DB_PASS=zebra99", "LICENSE_KEY='zebra99'",
    "DEEPSEEK_KEY: zebra99", '"GITLAB_PAT": "zebra99"', "SSHPASS=zebra99", "PGPASSWORD=zebra99",
    "curl -u joe:zebra99 http://x", "sshpass -p zebra99 ssh y", "echo zebra99 | docker login -u joe --password-stdin",
    "wandb login zebra99", "wandb login --relogin zebra99", "curl -H 'X-Auth: zebra99' y", 'curl -H "X-Odd: zebra99"',
    r'PASSWORD="a\"zebra99"', r'{"x": "export PASSWORD=\"a\\\"zebra99\""}', r'{"x": "export MY_KEY=\"a zebra99\""}',
    "db_pass: zebra99", "MY_KEY=a,zebra99", "A_KEY+=zebra99"])
def test_secrets_by_their_names_and_places_go_from_texts(text: str) -> None:
    redact = Redactor(set())
    assert "zebra99" not in redact(text) and redact.count


@pytest.mark.parametrize("text", [
    "keys: [a, b]", '{"key": "q1|m|1"}', "  api_key_env: NAME", "PWD=/home/joe", "OLDPWD=/x", "MAX_TOKENS=4096",
    '"expected_output_tokens": 800.0', "sort_keys=True", "USE_AUTH=auto", '"tokens": 12', "export HF_HOME=/x",
    "mkdir -p /scratch/x", "login node gpu-3 is up"])
def test_what_is_no_secret_by_its_name_stays(text: str) -> None:
    assert Redactor(set())(text) == text


@pytest.mark.parametrize("word", ["A", "_KEY", "A_KEY=", "A_KEY='", "A_KEY=\"", "A_KEY=\\\"", "-u", "-H", "echo ",
                                  "wandb login ", "setenv ", "\\", "\\\"", "a,", "A_KEY='B_KEY=\"", "-u a", "$("])
def test_long_words_are_looked_through_at_once(word: str) -> None:
    text = word * (900_000 // len(word))
    assert isinstance(Redactor(set())(text), str) and isinstance(cleaned(text[:90_000]), str)


SETUP = ["export WANDB_KEY=zebra99-a", "export ODD=zebra99-b", "export DB_PASS='zebra99-c d'", "x --token zebra99-d",
         "mysql -pzebra99-e", "vendor login joe zebra99-f", "curl -H 'Odd: zebra99-g' -u joe:zebra99-h y",
         "echo zebra99-i | vendor login", 'export Q="a\\"zebra99-j"', "cat <<< zebra99-k", "module load cuda"]


@pytest.mark.parametrize("broken", ["", "batchsize: 3\n"])
def test_no_value_of_a_setup_line_is_in_it(planted: Path, tmp_path: Path, broken: str) -> None:
    lines = "".join(f"    - {json.dumps(line)}\n" if number % 2 else f"    - '{line.replace(chr(39), chr(39) * 2)}'\n"
                    for number, line in enumerate(SETUP))
    (planted / "flock-hpc.yaml").write_text(
        f"cluster: local\nbaseline: base\n{broken}judge:\n  kind: rehearsal\n  environment:\n    setup:\n{lines}")
    (planted / "generated_judgment_scripts/run.sh").write_text("\n".join(SETUP))
    (planted / ".flock-hpc/plans/20260101_000000.json").write_text(
        json.dumps({"settings": {"judge": {"environment": {"setup": SETUP}}}}))
    (planted / "logs/arena-hard/judgment_batches/b_1.out").write_text("the server said zebra99-a\n")
    made, found = bundled(planted, tmp_path / "b.tar.gz")
    assert {name: [line for line in text.split("\n") if "zebra99" in line] for name, text in found.items()
            if "zebra99" in text} == {}
    assert made.removed >= len(SETUP) - 1
    assert "module load cuda" in found[f"{FOLDER}/settings/flock-hpc.yaml"]


def test_lines_that_seem_to_hold_a_secret_are_counted_from_one() -> None:
    assert suspicious_lines("a: 1\nexport HF_TOKEN=zebra99\nexport X_KEY=$Y\nA_KEY: zebra99\n--token $X\n") == [2, 4]
