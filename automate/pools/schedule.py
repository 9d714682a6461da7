"""The spec's crons: what a clock would do now, as messages; the lines to install for a real clock.

Never sleeps and never looks at the time: `now` is an argument."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from automate.errors import ConfigError
from automate.pools import records
from automate.pools.exchange import Exchange
from automate.pools.keys import process_id
from automate.pools.messages import Message

ACTIONS = ("Evaluate", "Update-Leaderboard", "Allocate-Rewards")
"""In this order: what was answered since is on the leaderboard before rewards are paid by it."""
_TARGETS = {
    "Evaluate": "SELECT p.id FROM processes p WHERE p.kind = 'dataset' AND p.ready AND (EXISTS (SELECT 1 FROM "
                "pools o JOIN pool_models pm ON pm.pool = o.id JOIN evaluations e ON e.model_id = pm.model WHERE "
                "o.dataset = p.id AND o.state = 'open' AND e.dataset = p.id AND e.state = 'pending') OR EXISTS (SELECT "
                "1 FROM evaluations e WHERE e.dataset = p.id AND e.state = 'started')) AND ?1 ORDER BY p.created, p.id",
    "Update-Leaderboard": "SELECT id FROM pools WHERE state = 'open' AND ?1 AND EXISTS (SELECT 1 FROM pool_models "
                          "WHERE pool = id) ORDER BY start_time, id",
    "Allocate-Rewards": "SELECT id FROM pools WHERE state = 'open' AND end_time <= ?1 ORDER BY end_time, id",
}
_GROUP = 100
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN = re.compile(r"/[\w/.+@:=%, -]*\Z")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z", re.ASCII)


# --- what is due --------------------------------------------------------------------------------------
def _period(exchange: Exchange, action: str) -> int:
    """Of a clock, in ms."""
    settings = exchange.settings
    seconds = {"Evaluate": settings.evaluate_every, "Update-Leaderboard": settings.leaderboard_every,
               "Allocate-Rewards": settings.rewards_every}[action]
    return max(1, int(seconds * 1000))


def _messages(exchange: Exchange, action: str, now: int) -> Iterator[Message]:
    """One for each target that had none in this turn. A turn is a whole period since 1970, so that a clock that comes
    a little late or early misses none."""
    period = _period(exchange, action)
    for row in exchange.store.db.execute(_TARGETS[action], (max(now, 1),)).fetchall():
        made = process_id("clock", action, str(period), str(now // period), row["id"])
        if records.known(exchange.store.db, made):
            continue
        dataset = action == "Evaluate"
        yield Message(made, exchange.owner, row["id"] if dataset else exchange.pool, {"Action": action},
                      "" if dataset else json.dumps({"dataset": row["id"]}), timestamp=now, via="clock")


def due(exchange: Exchange, now: int) -> list[Message]:
    """The clock's messages since the last tick, once, also after a week of sleep: Evaluate for each data set with rows
    that wait, of a model in an open pool, or are under way,
    Update-Leaderboard for each open pool with models (it asks for all of them),
    Allocate-Rewards for each pool that is over. Ids come from job and turn: the same turn twice has effect once.
    """
    return [message for action in ACTIONS for message in _messages(exchange, action, now)]


def tick(exchange: Exchange, now: int) -> dict[str, int]:
    """Send them; how many of each action were handled. An action begins when the one before has come to its end."""
    exchange.deliver()
    done = dict.fromkeys(ACTIONS, 0)
    for action in ACTIONS:
        messages = list(_messages(exchange, action, now))
        for start in range(0, len(messages), _GROUP):
            for receipt in exchange.receive(messages[start:start + _GROUP]):
                done[action] += receipt.state == "handled" and not receipt.replayed
    with exchange.store.transaction():
        exchange.store.db.executemany(
            "INSERT INTO ticks (job, last) VALUES (?, ?) "
            "ON CONFLICT (job) DO UPDATE SET last = max(last, excluded.last)",
            [(action, now) for action in ACTIONS])
    return done


# --- lines to install ---------------------------------------------------------------------------------
def lines(kind: Literal["cron", "scrontab", "systemd"], workspace: Path, executable: str, *,
          host: str | None = None) -> str:
    """What to install so that `pool tick` runs hourly. `host`: the machine that has the database, for scrontab, whose
    jobs run anywhere else. Raises ConfigError for paths that the format can't hold."""
    folder = str(workspace)
    for what, text in (("workspace", folder), ("executable", executable)):
        if _CONTROL.search(text) or not text:
            raise ConfigError(f"the {what}'s path is empty, or holds a line break or control character",
                              where=repr(text), todo="move it to a folder with a plain name")
    if host is not None and not _HOST.match(host):
        raise ConfigError("this is no name of a machine", where=repr(host))
    if not workspace.is_absolute():
        raise ConfigError("the workspace's path is not absolute", where=folder, todo="give the whole path")
    return {"cron": _cron, "scrontab": _scrontab, "systemd": _systemd}[kind](folder, executable, host)


def _command(folder: str, executable: str) -> str:
    """A line of shell: the tick, with what it says in the workspace's log."""
    logs = f"{folder.rstrip('/')}/logs/pools"
    return (f"mkdir -p {shlex.quote(logs)} && {shlex.quote(executable)} pool tick --workspace {shlex.quote(folder)} "
            f">> {shlex.quote(logs + '/tick.log')} 2>&1")


def _cron(folder: str, executable: str, host: str | None) -> str:
    command = _command(folder, executable)
    if "\\%" in command:
        raise ConfigError("a crontab can't hold a backslash before a percent sign", where=folder,
                          todo="use --systemd, or move the workspace")
    return ("# flock-hpc: evaluations hourly, leaderboards and rewards daily. Add with: crontab -e\n"
            f"7 * * * * {command.replace('%', chr(92) + '%')}\n")


def _scrontab(folder: str, executable: str, host: str | None) -> str:
    # Slurm takes the command as a script's text: a percent sign is nothing special in it.
    node = f"#SCRON --nodelist={host}\n" if host else (
        "# The database is on one machine's disk. Where jobs may run elsewhere, name it: #SCRON --nodelist=NODE\n")
    return ("# flock-hpc: evaluations hourly, leaderboards and rewards daily. Add with: scrontab -e\n"
            f"{node}#SCRON --job-name=flock-hpc-pools\n#SCRON --time=00:30:00\n#SCRON --output=/dev/null\n"
            f"7 * * * * {_command(folder, executable)}\n")


def _quoted(text: str) -> str:
    """One word of a systemd command line."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"'


def _systemd(folder: str, executable: str, host: str | None) -> str:
    unit = f"flock-hpc-pools-{hashlib.sha256(folder.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
    # systemd runs no program whose own path holds quotes and the like; as an argument it may hold anything.
    words = [executable] if _PLAIN.match(executable) else ["/bin/sh", "-c", 'exec "$0" "$@"', executable]
    start = " ".join(_quoted(word) for word in (*words, "pool", "tick", "--workspace", folder))
    return (f"# ~/.config/systemd/user/{unit}.service\n[Unit]\nDescription=flock-hpc benchmark pools: what is due\n\n"
            f"[Service]\nType=oneshot\nExecStart={start}\n\n"
            f"# ~/.config/systemd/user/{unit}.timer\n[Unit]\nDescription=flock-hpc benchmark pools, hourly\n\n"
            "[Timer]\nOnCalendar=hourly\nPersistent=true\n\n[Install]\nWantedBy=timers.target\n\n"
            f"# then: systemctl --user daemon-reload && systemctl --user enable --now {unit}.timer\n")
