"""judge.engine: upstream, with a small program of gen_judgment.py's contract in its place."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from automate.resources import configs_dir

STAND_IN = '''"""Reads a setting and an endpoint file, judges both orders, appends rows: gen_judgment.py's contract."""
import argparse, json, pathlib, re, urllib.request
import yaml
import utils.judge_utils as settings

parser = argparse.ArgumentParser()
parser.add_argument("--setting-file")
parser.add_argument("--endpoint-file")
args = parser.parse_args()
config = yaml.safe_load(open(args.setting_file))
endpoint = yaml.safe_load(open(args.endpoint_file))[config["judge_model"]]
bench = pathlib.Path("data") / config["bench_name"]
questions = [json.loads(line) for line in (bench / "question.jsonl").open()]


def answers(model):
    return {row["uid"]: row for row in map(json.loads, (bench / "model_answer" / f"{model}.jsonl").open())}


def judge(question, first, second):
    text = config["prompt_template"].format(QUESTION=question["prompt"], ANSWER_A=first, ANSWER_B=second)
    prompt = [{"role": "system", "content": settings.JUDGE_SETTINGS[question["category"]]["system_prompt"]},
              {"role": "user", "content": text}]
    body = {"model": endpoint["model"], "messages": prompt, "temperature": config["temperature"],
            "max_tokens": config["max_tokens"]}
    api = endpoint["endpoints"][0]
    request = urllib.request.Request(
        api["api_base"] + "/chat/completions", json.dumps(body).encode(),
        {"Authorization": "Bearer " + api["api_key"], "Content-Type": "application/json"})
    answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    found = re.findall(config["regex_patterns"][0], answer.upper())
    return {"score": found[-1] if found else None, "judgment": {"answer": answer}, "prompt": prompt}


folder = bench / "model_judgment" / config["judge_model"]
folder.mkdir(parents=True, exist_ok=True)
for model in config["model_list"]:
    ours, path = answers(model), folder / f"{model}.jsonl"
    done = {json.loads(line)["uid"] for line in path.open()} if path.exists() else set()
    for question in questions:
        if question["uid"] in done:
            continue
        baseline = settings.JUDGE_SETTINGS[question["category"]]["baseline"]
        texts = [a[question["uid"]]["messages"][-1]["content"]["answer"] for a in (answers(baseline), ours)]
        row = {"uid": question["uid"], "category": question["category"], "judge": config["judge_model"],
               "model": model, "baseline": baseline,
               "games": [judge(question, *texts), judge(question, *reversed(texts))]}
        with path.open("a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\\n")
'''
JUDGE_UTILS = '''"""Settings of a checkout, as literals."""
ASK = "Compare the answers. End with [[A>>B]], [[A>B]], [[A=B]], [[B>A]] or [[B>>A]]."
JUDGE_SETTINGS = {
    "hard_prompt": {"baseline": "example-baseline", "system_prompt": ASK},
    "creative_writing": {"baseline": "example-baseline", "system_prompt": ASK + " Be kind."},
}
'''


def make(tmp_path: Path, **judge: object) -> Path:
    shutil.copytree(configs_dir() / "example", tmp_path, dirs_exist_ok=True)
    checkout = tmp_path / "arena-hard-auto"
    (checkout / "utils").mkdir()
    (checkout / "utils" / "judge_utils.py").write_text(JUDGE_UTILS)
    (checkout / "gen_judgment.py").write_text(STAND_IN)
    shutil.copy(configs_dir() / "arena-hard-v2.0.yaml", checkout / "config")
    settings = {
        "cluster": "local", "baseline": "example-baseline", "limits": {"claim_stale": 2, "resubmits": 1},
        "judge": {"kind": "rehearsal", "engine": "upstream", "name": "example-judge",
                  "environment": {"venv": sys.prefix}, **judge},
    }
    (tmp_path / "flock-hpc.yaml").write_text(yaml.safe_dump(settings))
    return tmp_path


def flock(workspace: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "automate", *args], cwd=workspace, capture_output=True, text=True,
                          check=False, timeout=300)


def test_upstreams_program_plays_the_batches_own_yaml(tmp_path: Path) -> None:
    workspace = make(tmp_path)
    done = flock(workspace, "judge", "--all", "--submit", "--wait")
    logs = "".join(path.read_text() for path in workspace.glob("logs/arena-hard/judgment_batches/*"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    picture = json.loads(flock(workspace, "monitor", "--json").stdout)
    assert picture["totals"]["games"] == 72
    assert picture["notices"] == ["rehearsal judge: its verdicts mean nothing"]  # the checkout's own prompts
    assert all(model["unverified"] == 0 for model in picture["models"])  # its prompts are ours, byte for byte
    again = flock(workspace, "judge", "--all", "--submit", "--wait")
    assert "Nothing to do" in again.stdout


def test_a_null_of_upstreams_is_played_again(tmp_path: Path) -> None:
    workspace = make(tmp_path, rehearsal={"no_label": 0.3})
    flock(workspace, "judge", "--all", "--submit", "--wait")
    text = flock(workspace, "monitor", "--json").stdout
    totals = json.loads(text)["totals"]
    assert 0 < totals["games"] < 72
    assert totals["due"] == 72 - totals["games"]


def test_a_baseline_that_upstream_cant_express_is_refused(tmp_path: Path) -> None:
    workspace = make(tmp_path)
    done = flock(workspace, "judge", "--all", "--baseline", "example-step1000", "--submit")
    assert done.returncode == 1
    assert "FH404" in done.stdout
    assert "example-step1000" in done.stdout
