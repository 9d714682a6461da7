"""What becomes of rounds: handed over with their servers, again where a job died, given up where that is of no use.

Never submits a round of which a job may still act."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from automate.campaign.pools import jobs, servers
from automate.campaign.pools.looking import RoundView, open_rounds, view_of
from automate.campaign.state import look as look_at_campaign
from automate.cluster.base import Cluster
from automate.cluster.submit import SubmissionBook, settle_open
from automate.errors import FlockError
from automate.pools.answering.journal import due, recorded
from automate.pools.desk import Desk
from automate.pools.round_records import RoundSpec, read_spec, read_work
from automate.workspace import Workspace


def listed(found: object) -> list[Mapping[str, object]]:
    """The rows of a desk's answer."""
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def count(found: object) -> int:
    """A number of a desk's answer; 0 where it is none."""
    return found if isinstance(found, int) else 0


@dataclass
class Rounds:
    """The rounds of one workspace on one cluster. `note`: told what a user should know. `given_up`: by this command,
    with questions open, and why; `unserved`: models that can't be served, and why."""

    workspace: Workspace
    cluster: Cluster
    desk: Desk
    note: Callable[[str], None]
    given_up: dict[str, str] = field(default_factory=dict)
    unserved: dict[str, str] = field(default_factory=dict)

    # --- before a round is made -----------------------------------------------------------------
    def able(self, waiting: Iterable[Mapping[str, object]]) -> str | None:
        """Of the models that wait (rows of `due`), those that a round may have, by process id with commas between.

        None: all of them, and whatever else waits; "": none.
        """
        rows = {str(row["model"]): row for row in waiting}
        able, problems = servers.served_by(self.workspace, {name: str(row["data_tx"]) for name, row in rows.items()})
        self._fail(problems)
        room = self._room()
        if room is not None and len(able) > room:
            self.note(f"limits.max_submitted has room for servers of {room} models now; {len(able) - room} wait for "
                      "another round")
            able = able[:room]
        return None if len(able) == len(rows) else ",".join(str(rows[name]["process"]) for name in able)

    def _fail(self, problems: Mapping[str, str]) -> None:
        """What waits for models that can't be served has failed this time: it is asked again pools.attempts times."""
        self.unserved.update(problems)
        for model, why in problems.items():
            self.note(f"model {model} can't be served: {why}")
        if problems:
            self.desk.do("unserved", models=json.dumps(problems))

    def _room(self) -> int | None:
        """Of how many models servers may be submitted now, beside the round's job; None: of any number."""
        cap = self.workspace.settings.limits.max_submitted
        if cap is None:
            return None
        left = cap - len(look_at_campaign(self.workspace).active) - 1
        return max(0, left // self.workspace.settings.pools.replicas)

    # --- rounds of before -----------------------------------------------------------------------
    def care(self) -> None:
        """See to every open round: still at work, dead, or broken."""
        with jobs.alone(self.workspace):
            settle_open(SubmissionBook(jobs.places_of(self.workspace).submissions), self.cluster)
        for name in open_rounds(self.workspace):
            try:
                self.again(view_of(self.workspace, name))
            except FlockError as error:
                self.note(f"round {name}: {error}")

    def again(self, view: RoundView) -> None:
        """Hand a round over again whose job is over, a bounded number of times; then give it up."""
        if view.may_act:
            return
        with jobs.alone(self.workspace):
            now = view_of(self.workspace, view.name)  # another command may have seen to it meanwhile
            if now.done or now.may_act:
                return
            why = self._useless(now)
            if why is not None:
                self.give_up(now.name, why, self._hopeless(now))
            else:
                self._hand_over(read_spec(jobs.places_of(self.workspace), now.name))

    def _hopeless(self, view: RoundView) -> dict[str, str]:
        """Models of which no server starts."""
        return {} if view.problem is not None else servers.hopeless(self.workspace, view.name)

    def _useless(self, view: RoundView) -> str | None:
        """Why a round is not handed over again."""
        if view.problem is not None:
            return view.problem
        if view.count and view.answers >= view.count:
            return "every answer is there, and not all were taken"
        if view.executor is not None and view.executor != self.cluster.kind:
            return f"its job was on another cluster ({view.executor})"
        tries = len(jobs.submissions_of(self.workspace, view.name))
        if tries > self.workspace.settings.limits.resubmits:
            return f"its job ended {tries} times before all was answered ({view.state})"
        whys = servers.hopeless(self.workspace, view.name)
        left = self._left(view.name)
        return next((whys[model] for model in sorted(left)), None) if left and left <= whys.keys() else None

    def _left(self, name: str) -> set[str]:
        """Models of which a round still lacks answers."""
        places = jobs.places_of(self.workspace)
        return {line.model for line in due(read_work(places, name), recorded(places, name))}

    def give_up(self, name: str, why: str, hopeless: Mapping[str, str] | None = None) -> None:
        """What has no answer goes back, and the servers end; `hopeless`: models of which no server starts, and why.

        Raises PoolError, FlockError."""
        more = {"hopeless": json.dumps(dict(hopeless))} if hopeless else {}
        back = count(self.desk.do("give_up", round=name, why=why, **more))
        servers.end(self.workspace, name)
        if back:
            self.given_up[name] = why
        self.note(f"round {name} is given up, {back} questions are left open: {why}")

    # --- handed over ----------------------------------------------------------------------------
    def hand_over(self, spec: RoundSpec) -> None:
        """Servers for what is left of a round, and its job. Raises FlockError: it is tried again the next time."""
        with jobs.alone(self.workspace):
            if not jobs.places_of(self.workspace).done(spec.name).exists():
                self._hand_over(spec)

    def _hand_over(self, spec: RoundSpec) -> None:
        left = self._left(spec.name)
        wanted = {name: place for name, place in spec.models.items() if name in left or not spec.count}
        able, problems = servers.served_by(self.workspace, wanted)
        for model, problem in problems.items():
            self.note(f"model {model} can't be served: {problem}")
        if not able:
            why = "none of its models can be served" + (f": {'; '.join(problems.values())}" if problems else "")
            self.give_up(spec.name, why, problems)
            return
        for note in servers.start(self.workspace, self.cluster, spec, able):
            self.note(note)
        done = jobs.submit(self.workspace, self.cluster, spec)
        self.note(f"round {spec.name}: {spec.count} questions, {len(able)} models, job {done.job}")
