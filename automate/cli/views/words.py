"""The monitor's sentences: what a job does, why it waits, how fast the campaign is, when it ends.

Pure; both the plain text and the live view say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from automate.campaign.monitoring.vitals import OLD, PLAYING
from automate.cli.views.numbers import NONE, clock, memory, moment, share, short

if TYPE_CHECKING:
    from automate.campaign.monitoring.picture import AnswerLine, BadNode, BatchLine, JobLine, ModelLine, Snapshot
    from automate.campaign.monitoring.vitals import Rates

def things(kind: str) -> str:
    """What jobs of a kind of work make: games or answers."""
    return "answers" if kind == "generate" else "games"


def title(kind: str) -> str:
    """A kind of work in a title."""
    return "Generation" if kind == "generate" else "Judgment"


def batch_name(kind: str, batch: object) -> str:
    """`batch 3`; `answers batch 3` of those that generate: they have numbers of their own."""
    return f"{'answers ' if kind == 'generate' else ''}batch {batch}"


def answers(snap: Snapshot) -> str:
    """How many answers there are: `1200 of 3000 answers (40.0%), 3 of 4 models complete`; empty where none are made."""
    if not snap.answers:
        return ""
    totals, complete = snap.totals, sum(1 for one in snap.answers if not one.due)
    done, wanted = totals["answers"], totals["answers_wanted"]
    share = f" ({min(done / wanted, 0.999) if done < wanted else 1:.1%})" if wanted else ""
    return f"{done} of {wanted} answers{share}, {complete} of {count(len(snap.answers), 'model')} complete"


def sentence(text: str) -> str:
    """With a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def answer_note(line: AnswerLine) -> str:
    """What a reader should know of a model's answers beside their count."""
    found = [f"{line.stale} due again after a change"] if line.stale else []
    found += [f"{line.empty} empty"] if line.empty else []
    if line.failed:
        why = ", ".join(f"{number} {reason}" for reason, number in line.failed.items())
        found.append(f"{sum(line.failed.values())} given up ({why})")
    found += [line.problem] if line.problem else []
    return ", ".join(found)


def old(age: float | None) -> str:
    """A mark for what was said more than a minute ago."""
    return f"old: last word {clock(age)} ago" if age is not None and age > OLD else ""


def doing(job: JobLine) -> str:
    """The phase of a running job: `loading 3:20 of about 5:00`, `playing 15:30`."""
    phase = job.phase or "running"
    if phase in ("starting", "loading"):
        of = f" of about {clock(job.load_expected)}" if job.load_expected else ""
        return f"{phase} {clock(job.phase_seconds)}{of}" if job.phase_seconds is not None else phase
    if phase == "draining":
        return f"draining: starts no more {things(job.kind)}"
    if phase == "playing" and job.kind == "generate":
        phase = "generating"
    return f"{phase} {clock(job.phase_seconds)}" if job.phase_seconds is not None else phase


def waits(job: JobLine) -> str:
    """Why a job waits, in words, with Slurm's own word behind them."""
    code = f" ({job.reason})" if job.reason and job.words != job.reason else ""
    words = f"{job.words or 'no reason given'}{code}"
    if job.begins:
        about = "not before" if job.reason == "BeginTime" else "by Slurm's estimate"
        words += f", {about} {_hour(job.begins)}"
    if job.never:
        words += "; Slurm won't start it as it is"
    return words


def _hour(begins: str) -> str:
    """Slurm's `2026-11-21T09:02:10` without its T and seconds."""
    return begins.replace("T", " ")[:16]


def played(job: JobLine) -> str:
    """Games (or answers) of this start: `412 of 1500 games, 1.6 games/s, 32 in flight`."""
    parts, noun = [], things(job.kind)
    if job.played is not None:
        parts.append(f"{job.played} of {job.due} {noun}" if job.due else f"{job.played} {noun}")
    if job.rate is not None and job.phase in PLAYING:
        parts.append(f"{short(job.rate)} {noun}/s")
    if job.in_flight:
        parts.append(f"{job.in_flight} in flight")
    if job.unanswered:
        parts.append(f"{job.unanswered} unanswered")
    return ", ".join(parts)


def speed(rates: Rates) -> list[tuple[str, str]]:
    """The campaign's speed as (name, value), what matters most first; what nobody said is left out."""
    busy = share(None if rates.gpu_utilization is None else rates.gpu_utilization / 100)
    gpu = " ".join(part for part in (memory(rates.gpu_memory_used_mb, rates.gpu_memory_total_mb), busy) if part != NONE)
    found = [
        ("games/s", short(rates.games_per_second)), ("answers/s", short(rates.answers_per_second)),
        ("prompt tok/s", short(rates.prompt_tokens_per_second)),
        ("output tok/s", short(rates.output_tokens_per_second)), ("requests", _requests(rates)),
        ("KV cache", share(rates.kv_usage)),
        ("prefix hits", share(rates.prefix_hits)), ("GPU", gpu or NONE),
    ]
    return [(name, value) for name, value in found if value != NONE]


def _requests(rates: Rates) -> str:
    if rates.requests_running is None:
        return NONE
    waiting = f", {short(rates.requests_waiting)} waiting" if rates.requests_waiting is not None else ""
    return f"{short(rates.requests_running)} running{waiting}"


def silent(rates: Rates) -> str:
    """Jobs whose numbers are left out because they are old."""
    jobs = "1 job" if rates.silent == 1 else f"{rates.silent} jobs"
    return f"{jobs} silent for over a minute: old numbers left out" if rates.silent else ""


def ends(snap: Snapshot) -> str:
    """When the campaign is expected to end, with its range; empty where nobody can tell."""
    totals = snap.totals
    if totals["wanted"] and not totals["due"] and not totals["answers_due"]:
        return "all games are finished"
    if snap.finish is None:
        return ""
    finish, now = snap.finish, snap.time
    low, high = moment(finish.earliest, finish.at), moment(finish.latest, finish.at)
    around = f" ({low} to {high})" if low != high else ""
    return f"ends about {moment(finish.at, now)}{around}"


def nulls(reasons: dict[str, int]) -> str:
    """Nulls by reason: `12 nulls (9 unparsed, 3 too_long)`."""
    total = sum(reasons.values())
    if not total:
        return ""
    what = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items(), key=lambda item: -item[1]))
    return f"{total} null{'' if total == 1 else 's'} ({what if len(reasons) > 1 else next(iter(reasons))})"


def model_note(model: ModelLine) -> list[str]:
    """What a reader should know of a model beside its counts."""
    found = []
    if model.missing_answers and model.state != "no answers":
        found.append(f"{model.missing_answers} answers missing")
    if model.stale:
        found.append(f"{model.stale} due again after a change")
    if model.retrying:
        found.append(f"{model.retrying} to retry")
    if model.unverified:
        found.append(f"{model.unverified} unverified")
    if model.other_prompt:
        found.append(f"{model.other_prompt} judged with another prompt")
    return found


def bad_node(node: BadNode) -> str:
    """A bad node: `c3: 2 judge servers died there (CUDA); new jobs stay away from it`."""
    died = "a judge server or job died there" if node.deaths == 1 else f"{node.deaths} judge servers or jobs died there"
    return f"{node.node}: {died}{f' ({node.cause})' if node.cause else ''}; new jobs stay away from it"


def count(many: int, noun: str) -> str:
    """`1 failure`, `2 failures`."""
    return f"{many} {noun}" + ("" if many == 1 else "s")


def ended(state: str, cause: str) -> str:
    """How a job ended and of what, each word once: `timeout: time limit`, `cancelled by user ada`."""
    return cause if f"{cause} ".startswith((f"{state} ", f"{state}: ")) else f"{state}: {cause}"


def batches(lines: tuple[BatchLine, ...]) -> str:
    """How many batches are in which state: `12 batches: 3 complete, 2 running`."""
    if not lines:
        return ""
    counts: dict[str, int] = {}
    for line in lines:
        state = ("not handed in" if line.state == "planned" else line.state if line.state in ("running", "queued")
                 else f"{line.state} (games not counted)" if not line.counted else "complete" if not line.due
                 else "ended early" if line.state == "completed" else line.state)
        counts[state] = counts.get(state, 0) + 1
    names = {"queued": "pending"}
    if len(lines) == 1:
        return "1 batch: " + "".join(names.get(state, state) for state in counts)
    return f"{len(lines)} batches: " + ", ".join(f"{n} {names.get(state, state)}" for state, n in counts.items())


def gpu_hours(snap: Snapshot) -> str:
    """GPU-hours used, of how many where there is a cap."""
    if snap.gpu_hours is None:
        return ""
    of = f" of at most {snap.max_gpu_hours:g}" if snap.max_gpu_hours else ""
    aside = f", {snap.gpu_hours_set_aside:.1f} set aside" if snap.gpu_hours_set_aside and snap.max_gpu_hours else ""
    return f"{snap.gpu_hours:.1f} GPU-hours used{of}{aside}"


def queue(snap: Snapshot) -> str:
    """How old the cluster's answer is, or why it can't be asked."""
    asked = snap.queue.asked
    age = None if asked is None else max(0.0, snap.time - asked)
    if snap.queue.problem:
        when = f" (asked {clock(age)} ago)" if age is not None and age >= 1 else ""
        return f"Slurm can't be asked: {snap.queue.problem}{when}"
    return "" if age is None else f"queue as of {age:.0f} s ago" if age >= 1 else "queue as of now"
