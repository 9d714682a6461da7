"""Everything that can be known of a campaign before a GPU is asked for: lists, answers, baseline, prompts, sizes.

Never changes a file of the user's, never stops at the first problem, and never decides to go on."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from automate.arena.answering.due import given_up
from automate.arena.benchmark import Answers, Question, missing_uids, read_api_config, read_questions, unique
from automate.arena.context import baseline_map, load_answers
from automate.arena.preflight.cluster import cluster_findings
from automate.arena.preflight.codes import CODES
from automate.arena.preflight.findings import (
    Finding,
    Level,
    Run,
    error,
    from_error,
    note,
    passed,
    run_command,
    some,
    warning,
)
from automate.arena.preflight.fleet import fleet_checks
from automate.arena.preflight.judge import judge_findings
from automate.arena.preflight.machine import machine_findings
from automate.arena.prompts import Message, Prompts, load_prompts
from automate.arena.referee import bytes_bound
from automate.arena.running.runlog import read_runs
from automate.arena.running.upstream import upstream_problems
from automate.cluster.base import Cluster
from automate.errors import FlockError
from automate.names import name_problem
from automate.workspace import Workspace

__all__ = ["CODES", "Finding", "Level", "Report", "check", "run_command"]

T = TypeVar("T")
LongGame = tuple[int, str, str, bool]
"""A question whose two games may not fit: bytes, model, uid; and whether it is too long at LONG_TOKEN bytes a token."""
LONG_TOKEN = 8
"""Bytes a token of running text hardly ever covers; runs of one character are counted as three."""

_RUN = re.compile(r"(.)\1{3,}", re.DOTALL)

@dataclass(frozen=True)
class Report:
    """All findings, and which models can be judged (`ready`) or have errors of their own (`blocked`)."""

    findings: tuple[Finding, ...]
    ready: tuple[str, ...]
    blocked: tuple[str, ...]

    @property
    def fatal(self) -> tuple[Finding, ...]:
        """Errors that concern the whole campaign."""
        return tuple(f for f in self.findings if f.level is Level.ERROR and f.model is None)

    @property
    def ok(self) -> bool:
        """Whether there is no error at all."""
        return all(finding.level is not Level.ERROR for finding in self.findings)


@dataclass(frozen=True)
class Bench:
    """What every model is checked against, empty or None where unread; `rivals` are baseline texts by category."""

    questions: Sequence[Question]
    uids: Collection[str]
    prompts: Prompts | None
    rivals: Mapping[str, Mapping[str, str]]
    known: Collection[str] | None


def _attempt(found: list[Finding], code: str, subject: str, read: Callable[[], T],
             model: str | None = None) -> T | None:
    """What `read` returns; None where it fails, with the reason in `found`."""
    try:
        return read()
    except (FlockError, OSError) as problem:
        found.append(from_error(code, subject, problem, model))
        return None


def _bench(workspace: Workspace, limit: int | None, found: list[Finding]) -> Bench:
    settings = workspace.settings
    every = _attempt(found, "FH112", "questions", lambda: read_questions(workspace.questions, settings.bench)) or []
    questions = every[:limit]
    categories = {question.category for question in questions}
    prompts = _attempt(found, "FH401", "prompts", lambda: load_prompts(workspace.bench_settings, workspace.judge_utils))
    unread: list[Finding] = []
    known = _attempt(unread, "FH102", "api_config.yaml", lambda: read_api_config(workspace.api_config))
    found += unread if settings.judge.engine == "upstream" else [replace(one, level=Level.WARNING) for one in unread]
    found += _of_prompts(workspace, prompts, categories) if prompts else ()
    if settings.judge.engine == "upstream":
        wrong = _attempt(found, "FH404", "judge.engine", lambda: upstream_problems(workspace, categories)) or []
        wrong += ["it has no --limit-questions"] if limit else []
        found += [error("FH404", "judge.engine", text, "mend it, or set judge.engine: builtin") for text in wrong]
    if known is not None:
        if settings.judge.kind == "vllm" and settings.judge.name not in known:
            report = error if settings.judge.engine == "upstream" else warning
            found.append(report("FH102", settings.judge.name, "the judge is not in api_config.yaml", "add it there"))
        found += [warning("FH202", name, "the baseline is not in api_config.yaml", "add it, or mend the name")
                  for name in sorted(set(baseline_map(settings.baseline).values()) - set(known))]
    return Bench(questions, {question.uid for question in every}, prompts, _rivals(workspace, questions, found), known)


def _of_prompts(workspace: Workspace, prompts: Prompts, categories: set[str]) -> Iterator[Finding]:
    if prompts.notice:
        yield note("FH402", "prompts", f"{prompts.source}: {prompts.notice}", "to compare with others' scores, clone "
                   f"Arena-Hard; its own are read from {workspace.bench_settings} and {workspace.judge_utils}")
    if absent := sorted(categories - prompts.system.keys()):
        yield error("FH403", prompts.source, f"no judge prompt for the category {some(absent)}",
                    f"categories with a prompt: {', '.join(sorted(prompts.system))}")


def _load(workspace: Workspace, name: str, found: list[Finding], code: str, model: str | None) -> Answers | None:
    before = len(found)
    answers = _attempt(found, code, name, lambda: load_answers(workspace, name), model)
    if answers is None and len(found) == before:
        found.append(error(code, name, "no answer file", f"generate its answers into {workspace.answers}, or mend "
                           "the name", model))
    return answers


def _rivals(workspace: Workspace, questions: Sequence[Question], found: list[Finding]) -> dict[str, dict[str, str]]:
    """The baseline's texts by category; what is wrong with them goes to `found`."""
    wanted = baseline_map(workspace.settings.baseline)
    total = Counter(question.category for question in questions)
    names = {category: wanted.get(category, wanted.get("*", "")) for category in total}
    if bare := [category for category, name in sorted(names.items()) if not name]:
        found.append(error("FH203", "baseline", f"no baseline for the category {some(bare)}",
                           "give one model for all, or one for each category"))
    texts: dict[str, dict[str, str]] = {}
    for name in sorted(set(wanted.values())):
        answers = _load(workspace, name, found, "FH201", None)
        if answers is not None:
            mine = [question for question in questions if names[question.category] == name]
            found += [*_of_baseline(workspace, answers, mine, total), *_of_rehearsed(workspace, answers, None)]
            texts |= {category: answers.texts for category in total if names[category] == name}
    return texts


def _of_baseline(workspace: Workspace, answers: Answers, questions: Sequence[Question],
                 total: Mapping[str, int]) -> Iterator[Finding]:
    left, lost = _without_given_up(workspace, answers, missing_uids(answers, questions), questions)
    absent = set(left)
    if lost:
        yield warning("FH201", answers.model, f"the baseline's answers: {lost}, for every model")
    by_category = Counter(question.category for question in questions if question.uid in absent)
    wrong = [f"{category}: {count} of {total[category]} questions have no answer"
             for category, count in sorted(by_category.items())]
    wrong += [f"bad lines: {some(answers.problems)}"] if answers.problems else []
    wrong += [f"more than one answer to {some(unique(answers.duplicates)[0])}"] if answers.duplicates else []
    for text in wrong:
        yield error("FH201", answers.model, f"the baseline's answers: {text}", f"mend {answers.path}")
    if questions and not wrong and not lost:
        yield passed("FH201", answers.model, f"the baseline answers all of its {len(questions)} questions")


def _of_lists(models: Sequence[str], problems: Sequence[str]) -> Iterator[Finding]:
    for text in problems:
        report, model = (warning, None) if text.endswith(("judged once", "left out")) else (error, text)
        yield report("FH101", "models list", text, "mend the list", model)
    names, double = unique(models)
    for name in double:
        yield warning("FH101", name, "listed more than once; it is judged once")
    for name in names:
        if problem := name_problem(name):
            yield error("FH101", repr(name), f"can't be a model's name: {problem}", "mend the list", name)


def _of_model(workspace: Workspace, bench: Bench, model: str) -> Iterator[Finding]:
    settings = workspace.settings
    if model in baseline_map(settings.baseline).values():
        yield error("FH111", model, "the baseline can't be judged against itself", "take it off the list", model)
    if bench.known is not None and model not in bench.known:
        near = difflib.get_close_matches(model, bench.known, n=1)
        report = note if model in settings.generate.models else error
        yield report("FH102", model, "not in api_config.yaml", (f"did you mean '{near[0]}'? " if near else "")
                    + f"add it to {workspace.api_config}, or mend the name", model)


def _without_given_up(workspace: Workspace, answers: Answers, absent: Sequence[str], questions: Sequence[Question],
                      ) -> tuple[list[str], str]:
    """Absent questions that can still be answered, and what to say of those that were asked in vain."""
    lost = given_up(workspace, [q for q in questions if q.uid in set(absent)], answers.model) if absent else {}
    by_reason = ", ".join(f"{count} {reason}" for reason, count in sorted(Counter(lost.values()).items()))
    return ([uid for uid in absent if uid not in lost],
            f"{len(lost)} of {len(questions)} questions were asked of it in vain ({by_reason}) and are left out of its "
            "games" if lost else "")


def _of_answers(workspace: Workspace, bench: Bench, answers: Answers) -> Iterator[Finding]:
    model, texts, mend = answers.model, answers.texts, f"mend {answers.path}"
    absent, lost = _without_given_up(workspace, answers, missing_uids(answers, bench.questions), bench.questions)
    if lost:
        yield warning("FH104", model, lost, "limits.attempts says how often they are asked", model)
    if bench.uids and texts and not set(bench.uids) & texts.keys():
        yield error("FH107", model, f"its {len(texts)} answers are another bench's: no uid of this one among them",
                    f"put its answers to this bench at {answers.path}", model)
    elif absent:
        yield error("FH104", model, f"no answer to {len(absent)} of {len(bench.questions)} questions: {some(absent)}",
                    "generate the missing answers, then run the same command again", model)
    if double := unique(answers.duplicates)[0]:
        yield error("FH105", model, f"more than one answer to {len(double)} questions: {some(double)}", mend, model)
    if bad := answers.problems:
        yield error("FH106", model, f"{len(bad)} lines can't be read: {some(bad)}", mend, model)
    if empty := sum(not texts[q.uid].strip() for q in bench.questions if q.uid in texts):
        yield warning("FH108", model, f"{empty} empty answer{'s' * (empty > 1)}, judged like any other", "", model)
    if answers.row_model != model:
        yield note("FH109", model, f"its rows name '{answers.row_model}'; the file's name counts", model=model)


def _of_rehearsed(workspace: Workspace, answers: Answers, model: str | None) -> Iterator[Finding]:
    if answers.rehearsed:
        report = note if workspace.settings.judge.kind == "rehearsal" else error
        yield report("FH113", answers.model, f"{answers.rehearsed} of its answers are a rehearsal's and mean nothing",
                     "generate them with generate.kind: vllm ('flock-hpc generate')", model)


def _plain(messages: Sequence[Message]) -> int:
    return sum(len(_RUN.sub(r"\1\1\1", message["content"]).encode()) for message in messages)


def _long_games(bench: Bench, answers: Answers, room: int) -> Iterator[LongGame]:
    """Questions whose prompt's bytes exceed `room` tokens, with whether they surely don't fit."""
    for question in bench.questions:
        ours, theirs = answers.texts.get(question.uid), bench.rivals.get(question.category, {}).get(question.uid)
        if ours is None or theirs is None or bench.prompts is None or question.category not in bench.prompts.system:
            continue
        messages = bench.prompts.render(question.category, question.prompt, theirs, ours)
        size = bytes_bound(messages)
        if size > room:
            yield size, answers.model, question.uid, size > room * LONG_TOKEN and _plain(messages) > room * LONG_TOKEN


def _of_context(found: Sequence[LongGame], context: int, total: int) -> Finding:
    longest = [f"{model} {uid} ({size} bytes)" for size, model, uid, _ in sorted(found, reverse=True)]
    sure = 2 * sum(game[-1] for game in found)
    return warning(
        "FH308", "judge context", f"{2 * len(found)} of {total} games have more bytes than {context} tokens of context "
        f"have room for; {sure} of them are too long even at {LONG_TOKEN} bytes a token, the others may be. "
        f"The longest: {some(longest)}", "the server's tokenizer decides; a game that doesn't fit gets no verdict. A "
        "longer context (of a vLLM judge: judge.server.max_model_len) takes more memory")


def check(workspace: Workspace, models: Sequence[str], *, cluster: Cluster | None, executor: str,
          run: Run = run_command, limit_questions: int | None = None, list_problems: Sequence[str] = (),
          fleet: bool = False) -> Report:
    """Everything that can be known before a GPU is asked for; all problems at once.

    `executor` is slurm or local; `cluster` is asked whether it would take a job, where given. `run` runs a local
    command; `limit_questions` counts the first questions only; `list_problems` are those of the models file.
    `fleet`: whether the games are to be played on a fleet.
    """
    found = list(_of_lists(models, list_problems))
    bench, names, asked = _bench(workspace, limit_questions, found), unique(models)[0], workspace.settings.judge
    judge, context = judge_findings(workspace, executor, run)
    long: list[LongGame] = []
    for model in names:
        if name_problem(model) is None:
            found += _of_model(workspace, bench, model)
            answers = _load(workspace, model, found, "FH103", model)
            if answers:
                found += [*_of_answers(workspace, bench, answers), *_of_rehearsed(workspace, answers, model)]
            if answers and context:
                long += _long_games(bench, answers, context - min(asked.min_output_tokens, asked.max_tokens))
    bad = {finding.model for finding in found if finding.level is Level.ERROR}
    ready, blocked = tuple(m for m in names if m not in bad), tuple(m for m in names if m in bad)
    games, long = 2 * len(bench.questions) * len(ready), [game for game in long if game[1] in ready]
    if long and context:
        found.append(_of_context(long, context, games))
    if ready and bench.questions:
        found.append(passed("FH104", "models", f"{len(ready)} of {len(names)} have all {len(bench.questions)} answers"))
    elif not ready:
        found.append(error("FH110", "models", "no model can be judged" if names else "no model is named",
                           f"name models with complete answers in {workspace.answers}"))
    found += [*judge, *machine_findings(workspace, ready, games, cluster, executor, run)]
    found += cluster_findings(workspace.settings, len(ready), executor)
    found += fleet_checks(workspace, executor, runs=read_runs(workspace.runs)) if fleet else ()
    return Report(tuple(sorted(found, key=lambda finding: finding.code)), ready, blocked)
