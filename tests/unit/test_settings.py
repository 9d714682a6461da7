"""Settings: what wins over what, and errors that name file, line, key and the nearest known key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import ValidationError

from automate.arena.answering import tokens
from automate.errors import ConfigError, ManyErrors, StorageError
from automate.settings import Settings
from automate.settings_generate import TOKENIZERS
from automate.settings_loader import load_settings, merge, profile_names
from automate.yamlfile import Value
from tests.unit.support import make_settings, nested


@dataclass(frozen=True)
class Load:
    """Loads settings from the text of flock-hpc.yaml, variables without their prefix, and flags."""

    root: Path

    def __call__(self, text: str = "", variables: Mapping[str, str] | None = None, **flags: Value) -> Settings:
        file = self.root / "flock-hpc.yaml"
        file.write_text(text, encoding="utf-8")
        environ = {f"FLOCK_HPC_{name}": value for name, value in (variables or {}).items()}
        return load_settings(file, root=self.root, environ=environ, overrides=nested(**flags))


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return Load(tmp_path)


def problems(load: Load, text: str = "", variables: Mapping[str, str] | None = None, **flags: Value) -> list[str]:
    """The first line of each problem, without the folder."""
    with pytest.raises((ConfigError, ManyErrors)) as refused:
        load(text, variables, **flags)
    error = refused.value
    found = error.errors if isinstance(error, ManyErrors) else (error,)
    return [str(one).split("\n")[0].removeprefix(f"{load.root}/") for one in found]


# What wins


def test_defaults_need_no_file() -> None:
    settings = load_settings(None, environ={})
    assert settings.judge.name == "neuralmagic-llama3.1-70b-instruct-fp8"
    assert settings.baseline == "llama3.1-8b-instruct"
    assert settings.batch_size == 10
    assert settings.slurm.time == "02:00:00"


def test_each_layer_wins_over_the_one_below(load: Load) -> None:
    text = "cluster: capella\nslurm:\n  mem: 32G\n"
    variables = {"SLURM__MEM": "16G"}
    assert make_settings().slurm.partition is None
    assert load("cluster: capella\n").slurm.mem == "64G"
    assert load(text).slurm.mem == "32G"
    assert load(text, variables).slurm.mem == "16G"
    assert load(text, variables, slurm__mem="8G").slurm.mem == "8G"
    assert load(text, variables, slurm__mem="8G").slurm.partition == "capella"


def test_a_layer_may_choose_the_profile(load: Load) -> None:
    assert load("cluster: generic\n", {"CLUSTER": "capella"}).slurm.partition == "capella"
    assert load("cluster: capella\n", cluster="local").executor == "local"
    assert load("cluster: local\n").slurm.mem is None


def test_variables_reach_every_depth(load: Load) -> None:
    settings = load("", {
        "JUDGE__NAME": "other", "JUDGE__SERVER__RESTARTS": "7", "JUDGE__SERVER__ARGS": "[--seed, '1']",
        "BATCH_SIZE": "3", "ARRAY": "no", "SLURM__TIME": "12:00:00", "BASELINE": "base", "SLURM__MEM": "",
    })
    assert (settings.judge.name, settings.judge.server.restarts, settings.batch_size) == ("other", 7, 3)
    assert (settings.array, settings.slurm.time, settings.baseline) == (False, "12:00:00", "base")
    assert settings.slurm.mem is None
    assert settings.judge.server.args == ["--seed", "1"]


def test_variables_of_the_program_itself_are_no_settings(load: Load) -> None:
    assert load("", {"TEST_DATA": "x", "WORKSPACE": "x", "JOB": "x", "CACHE": "x"}) == load("")


def test_lists_and_baselines_are_replaced_whole() -> None:
    low: dict[str, Value] = {"a": {"b": 1, "c": [1, 2]}, "baseline": {"x": "one"}, "rehearsal": {"drop": 1}}
    high: dict[str, Value] = {"a": {"c": [3]}, "baseline": {"y": "two"}, "rehearsal": {"hang": 1}}
    assert merge(low, high) == {"a": {"b": 1, "c": [3]}, "baseline": {"y": "two"}, "rehearsal": {"hang": 1}}
    assert low["a"] == {"b": 1, "c": [1, 2]}


# Types


def test_times_stay_text(load: Load) -> None:
    for time in ("12:00:00", "1-12:00:00", "30:00", "1-0", "UNLIMITED"):
        assert load(f"slurm:\n  time: {time}\n").slurm.time == time


@pytest.mark.parametrize("time", ["60", "'1440'"])
def test_minutes_are_a_time_too(load: Load, time: str) -> None:
    assert load(f"slurm:\n  time: {time}\n").slurm.time == time.strip("'")


def test_numbers_serve_where_text_is_wanted(load: Load) -> None:
    assert load("", {"SLURM__ACCOUNT": "12345"}).slurm.account == "12345"
    assert load("environment:\n  OMP_NUM_THREADS: 8\n").environment == {"OMP_NUM_THREADS": "8"}


@pytest.mark.parametrize("text", ["0.10", "1.10", "1e5", "3."])
def test_a_float_where_text_is_wanted_must_be_quoted(load: Load, text: str) -> None:
    (problem,) = problems(load, f"slurm:\n  account: {text}\n")
    assert problem.startswith("flock-hpc.yaml:2: slurm.account: ")
    assert load(f"slurm:\n  account: '{text}'\n").slurm.account == text


def test_baselines_for_all_or_by_category(load: Load) -> None:
    assert load("baseline: base\n").baseline == "base"
    assert load("baseline:\n  hard_prompt: x\n  creative_writing: y\n").baseline == {
        "hard_prompt": "x", "creative_writing": "y"}
    assert problems(load, "baseline:\n  hard: ../x\n")[0].startswith("flock-hpc.yaml:1: baseline: baseline name '../x'")
    assert problems(load, "baseline: {}\n") == [
        "flock-hpc.yaml:1: baseline: expected a model's name, or one for each category"]


def test_sbatch_options(load: Load) -> None:
    text = "slurm:\n  options:\n    mail-type: END\n    exclusive: true\n    nice: 100\n    requeue: false\n"
    assert load(text).slurm.options == {"mail-type": "END", "exclusive": True, "nice": 100, "requeue": False}
    assert [type(value) for value in load(text).slurm.options.values()] == [str, bool, int, bool]


@pytest.mark.parametrize(("option", "words"), [
    ("--mail-type: END", "'--mail-type' is not a long sbatch option"),
    ("Mail: END", "'Mail' is not a long sbatch option"),
    ("job-name: x", "'job-name' is set by flock-hpc"),
    ("array: 1-3", "'array' is set by flock-hpc"),
    ("output: x", "'output' is set by flock-hpc"),
    ('comment: "a\\nb"', "one line"),
    ("mail-type: [END]", "valid string"),
])
def test_bad_sbatch_options(load: Load, option: str, words: str) -> None:
    (problem,) = problems(load, f"slurm:\n  options:\n    {option}\n")
    assert words in problem
    assert problem.startswith("flock-hpc.yaml:")


@pytest.mark.parametrize("text", [
    "bench: ../x", "judge: {name: a/b}", "judge: {name: ''}", "slurm: {time: soon}", "slurm: {partition: \"a\\nb\"}",
    "judge: {kind: openai}", "judge: {max_cost: 5}", "judge: {kind: openai, base_url: 'http://x/v1', engine: upstream}",
    "judge: {environment: {venv: a, conda: b}}", "batch_size: 0", "limits: {attempts: 0}", "judge: {temperature: -1}",
    "executor: pbs", "judge: {concurrency: 0}", "judge: {environment: {variables: {'A B': x}}}",
    "environment: {'1A': x}", "judge: {api_key_env: 'not a name'}", "models_file:", "slurm: [a]",
])
def test_senseless_settings_are_refused_by_file_and_line(load: Load, text: str) -> None:
    (problem,) = problems(load, text + "\n")
    assert problem.startswith("flock-hpc.yaml:1: "), problem


@pytest.mark.parametrize("name", ["HF_TOKEN", "OPENAI_API_KEY", "openai_apikey", "DB_PASSWORD", "MY_SECRET",
                                  "SSH_PRIVATE_KEY", "API_KEYS"])
def test_secrets_stand_in_no_file(load: Load, name: str) -> None:
    for text in (f"environment:\n  {name}: hush\n", f"judge:\n  environment:\n    variables:\n      {name}: hush\n"):
        (problem,) = problems(load, text)
        assert f"'{name}' looks like a secret" in problem
        assert "hush" not in problem


def test_variables_that_only_sound_like_secrets(load: Load) -> None:
    text = "environment:\n  TOKENIZERS_PARALLELISM: 'false'\n  HF_TOKEN_PATH: /x\n  KEYBOARD: de\n"
    assert len(load(text).environment) == 3


def test_cloud_keys_are_secrets_too(load: Load) -> None:
    assert problems(load, "environment:\n  AWS_SECRET_ACCESS_KEY: hush\n")


def test_a_key_given_by_mistake_is_not_shown(load: Load) -> None:
    (problem,) = problems(load, "judge:\n  api_key_env: sk-live-4242\n")
    assert "4242" not in problem


@pytest.mark.parametrize("text", [
    'slurm:\n  time: "02:00:00\\n"', 'slurm:\n  options:\n    "comment\\n": x', 'environment:\n  "FOO\\n": x',
])
def test_no_pattern_lets_a_newline_through(load: Load, text: str) -> None:
    assert problems(load, text + "\n")


def test_settings_cant_be_changed() -> None:
    with pytest.raises(ValidationError):
        make_settings().batch_size = 3  # type: ignore[misc]


# Where it is wrong


def test_an_unknown_key_names_the_nearest(load: Load) -> None:
    with pytest.raises(ConfigError) as refused:
        load("bench: arena-hard-v2.0\njudge:\n  nmae: x\n")
    assert str(refused.value).endswith(
        "flock-hpc.yaml:3: judge.nmae: unknown key 'nmae'\n  -> did you mean 'name'?")
    with pytest.raises(ConfigError, match="known keys here: memory_gb, name"):
        load("gpu:\n  zzz: 1\n")
    with pytest.raises(ConfigError, match="did you mean 'batch_size'"):
        load("batchsize: 3\n")


def test_a_double_key_and_a_wrong_type(load: Load) -> None:
    assert problems(load, "bench: a\njudge: {}\nbench: b\n") == [
        "flock-hpc.yaml:3: the key 'bench' stands here twice"]
    assert problems(load, "bench: a\nbatch_size: many\n") == [
        "flock-hpc.yaml:2: batch_size: input should be a valid integer, unable to parse string as an integer, "
        "found 'many'"]


def test_all_problems_are_told_at_once(load: Load) -> None:
    text = "batch_size: 0\nslurm:\n  cpus_per_task: none\n  gpu: 1\njudge:\n  server:\n    restart: 2\n"
    found = problems(load, text)
    assert sorted(problem.partition(": ")[0] for problem in found) == [
        f"flock-hpc.yaml:{line}" for line in (1, 3, 4, 7)]
    assert {problem.split(": ")[1] for problem in found} == {
        "batch_size", "slurm.cpus_per_task", "slurm.gpu", "judge.server.restart"}


def test_a_problem_names_its_variable_or_flag(load: Load) -> None:
    assert problems(load, "batch_size: 3\n", {"BATCH_SIZE": "x"})[0].startswith(
        "environment variable FLOCK_HPC_BATCH_SIZE: batch_size: ")
    assert problems(load, "", {"JUDGE__NMAE": "x"}) == [
        "environment variable FLOCK_HPC_JUDGE__NMAE: judge.nmae: unknown key 'nmae'"]
    assert problems(load, "batch_size: 3\n", batch_size=0)[0].startswith("command line (batch_size")


def test_a_flag_is_not_blamed_for_its_neighbours(load: Load) -> None:
    assert problems(load, "judge:\n  max_tokens: 0\n", judge__name="x")[0].startswith("flock-hpc.yaml:2: ")


def test_a_flag_is_blamed_before_a_variable(load: Load) -> None:
    found = problems(load, "", {"JUDGE__MAX_TOKENS": "5"}, judge__max_tokens=0)
    assert found[0].startswith("command line (judge")


def test_a_wrong_baseline_of_a_category_is_one_problem(load: Load) -> None:
    assert [problem.split(": ")[1] for problem in problems(load, "baseline:\n  hard: [x]\n")] == ["baseline.hard"]


def test_a_wrong_concurrency_is_told_what_it_may_be(load: Load) -> None:
    assert "auto" in problems(load, "judge:\n  concurrency: fast\n")[0]


def test_a_variable_may_set_a_jobs_variable(load: Load) -> None:
    assert load("", {"ENVIRONMENT__FOO": "bar"}).environment == {"FOO": "bar"}


# Profiles


def test_the_shipped_profiles_are_good(load: Load) -> None:
    assert {"capella", "generic", "local"} <= set(profile_names())
    for name in profile_names():
        assert load(f"cluster: {name}\n").cluster == name


def test_an_unknown_profile_names_the_nearest(load: Load) -> None:
    with pytest.raises(ConfigError, match="did you mean 'capella'"):
        load("cluster: capela\n")
    with pytest.raises(ConfigError, match=r"no cluster profile named '\.\./x'"):
        load("cluster: ../x\n")


def test_own_profiles_win_and_are_checked(load: Load, tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "capella.yaml").write_text("description: ours\nslurm:\n  partition: mine\n")
    assert load("cluster: capella\n").slurm.partition == "mine"
    (tmp_path / "other.yaml").write_text("slurm:\n  partition: third\n  qos: [3]\n")
    assert problems(load, "cluster: other.yaml\n")[0].startswith("other.yaml:3: slurm.qos: ")
    (tmp_path / "other.yaml").write_text("cluster: generic\n")
    assert problems(load, "cluster: other.yaml\n") == ["other.yaml:1: a profile can't name another profile"]
    with pytest.raises(StorageError, match=r"missing\.yaml"):
        load("cluster: missing.yaml\n")


def test_no_file_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"none\.yaml"):
        load_settings(tmp_path / "none.yaml", environ={})


def test_an_empty_section_has_its_defaults(load: Load) -> None:
    assert load("judge:\nslurm:\n").judge.name == "neuralmagic-llama3.1-70b-instruct-fp8"


@pytest.mark.parametrize(("text", "word"), [
    ("slurm:\n  options: {time: '1:00:00'}\n", "slurm.time"), ("slurm:\n  options: {cpus-per-task: 4}\n", "cpus_per"),
    ("judge:\n  server:\n    args: [--api-key, x]\n", "--api-key"),
    ("judge:\n  server:\n    args: [--port=1]\n", "--port"),
])
def test_what_has_a_place_of_its_own_is_refused_elsewhere(load: Load, text: str, word: str) -> None:
    assert word in problems(load, text)[0]


def test_a_mistyped_variable_names_the_nearest(load: Load) -> None:
    assert "FLOCK_HPC_BATCHSIZE" in problems(load, "", {"BATCHSIZE": "3"})[0]


@pytest.mark.parametrize("word", ["--api-key=x", "--api_key", "--uds=/x", "--host", "--port=1", "--served-model-name",
                                  "--served_model_name=x"])
@pytest.mark.parametrize("where", ["judge.server.args", "generate.server.args", "generate.models.m.args"])
def test_what_a_job_sets_itself_is_refused_among_the_arguments(load: Load, where: str, word: str) -> None:
    (problem,) = problems(load, _at(where, f"[--seed, '1', '{word}']"))
    assert f"'{word.partition('=')[0]}' is set by the job itself" in problem
    assert problem.startswith("flock-hpc.yaml:")


@pytest.mark.parametrize("word", ["--hf-token=hush", "--hf_token", "--token", "--Some-Password=hush"])
@pytest.mark.parametrize("where", ["judge.server.args", "generate.server.args", "generate.models.m.args"])
def test_an_argument_that_carries_a_secret_is_refused_and_not_shown(load: Load, where: str, word: str) -> None:
    (problem,) = problems(load, _at(where, f"['{word}', hush]"))
    assert f"'{word.partition('=')[0]}' carries a secret" in problem
    assert "export it" in problem
    assert "hush" not in problem


@pytest.mark.parametrize("where", ["generate.server.args", "generate.models.m.args"])
@pytest.mark.parametrize("word", ["--enable-lora", "--lora-modules", "--max-loras=3", "--max-lora-rank"])
def test_the_adapters_of_a_job_are_its_own_affair(load: Load, where: str, word: str) -> None:
    assert "set by the job itself" in problems(load, _at(where, f"['{word}']"))[0]
    assert load(_at("judge.server.args", f"['{word}']")).judge.server.args == [word]


def test_other_arguments_stay_as_they_are(load: Load) -> None:
    words = "[--seed, '1', --long-prefill-token-threshold=9, --enable-prompt-tokens-details, -tp, '2', token, --]"
    for where in ("judge.server.args", "generate.server.args", "generate.models.m.args"):
        load(_at(where, words))
    assert load(_at("judge.server.args", words)).judge.server.args[2] == "--long-prefill-token-threshold=9"


@pytest.mark.parametrize(("text", "words"), [
    ("slurm: {time: x}", "expected a Slurm time"), ('slurm: {gres: "a\\nb"}', "one line"),
    ("path: /checkpoints/step-100", "every model would come from the same folder"),
    ("tokenizer: p50k_base", "expected one of o200k_base, cl100k_base"),
])
def test_senseless_settings_of_answers_are_refused(load: Load, text: str, words: str) -> None:
    (problem,) = problems(load, f"generate:\n  {text}\n")
    assert problem.startswith("flock-hpc.yaml:2: generate.")
    assert words in problem
    assert load("generate: {slurm: {time: 1-00:00:00}}\n").generate.slurm.time == "1-00:00:00"


def test_the_known_tokenizers_are_those_whose_files_are_known() -> None:
    assert tuple(tokens._FILES) == TOKENIZERS


def _at(where: str, text: str) -> str:
    """flock-hpc.yaml with one value at a dotted place."""
    keys = where.split(".")
    return "".join(f"{'  ' * depth}{key}:\n" for depth, key in enumerate(keys[:-1])) + \
        f"{'  ' * (len(keys) - 1)}{keys[-1]}: {text}\n"
