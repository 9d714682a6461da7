"""A campaign under fire: whatever is killed, no game is lost, none is kept twice, and nothing is left running."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

from tests.e2e.support import (
    BASELINE,
    EXAMPLES,
    TULU,
    assert_complete,
    assert_nothing_runs,
    command,
    environment,
    eventually,
    games_of,
    jobs,
    journal,
    judge_now,
    judge_settings,
    kill,
    make_workspace,
    read_answers,
    read_questions,
    read_rows,
    repeated,
    rows_file,
    verdicts_of,
    victims,
)

KILLS = 10
PARTS = ("engine", "guard", "server", "runner")
LIMITS = {"claim_stale": 1, "resubmits": 50, "poll": 0.5, "max_parallel": 2}


class Command:
    """`judge --submit --wait`, started again whenever it ends with games due."""

    def __init__(self, root: Path, log: Path) -> None:
        self.root, self.log, self.starts = root, log, 0
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        assert self.starts <= 20, f"no end after 20 starts:\n{self.log.read_text()}"
        arguments = command("judge", "--all", "--batch-size", "1", "--submit", "--wait", "--executor", "local")
        with self.log.open("ab") as out:
            return subprocess.Popen(arguments, cwd=self.root, env=environment(), stdin=subprocess.DEVNULL,
                                    stdout=out, stderr=subprocess.STDOUT)

    def ended(self) -> bool:
        """Whether the campaign is complete; a command that ended before that is started again."""
        status = self.process.poll()
        if status:
            self.process = self._start()
        return status == 0

    def end(self) -> None:
        """End the command, if it is still there; its jobs go on."""
        self.process.kill()
        self.process.wait()


def kill_one(root: Path, part: str) -> bool:
    """SIGKILL one process of this part of a job; False where there is none now."""
    return any(kill(process) for process in victims(root).get(part, []))


def storm(root: Path, running: Command, chance: random.Random) -> list[str]:
    """Kill at random moments until enough was killed, or the campaign is complete; what was killed."""
    killed: list[str] = []
    order = [*PARTS, *PARTS, *chance.choices(PARTS, k=KILLS - 2 * len(PARTS))]
    chance.shuffle(order)
    for part in order:
        time.sleep(chance.uniform(0.5, 3))
        while not running.ended():
            if kill_one(root, part):
                killed.append(part)
                break
            time.sleep(0.05)
    return killed


def test_commands_at_once_submit_once(tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "one", batch_size=1)
    arguments = command("judge", "--all", "--submit", "--executor", "local")
    several = [subprocess.Popen(arguments, cwd=root, env=environment(), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(4)]
    texts = [process.communicate(timeout=120)[0] for process in several]
    assert sum("submitted 3 batches" in text for text in texts) == 1, texts
    assert all(process.returncode == 0 or "held by process" in text
               for process, text in zip(several, texts, strict=True)), texts
    judge_now(root, "--all")
    assert len(jobs(root)) == 3
    assert games_of(root, EXAMPLES) == verdicts_of(root, EXAMPLES)
    assert len(games_of(root, EXAMPLES)) == 72


def test_a_dead_batch_is_handed_over_while_others_run(tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "one", limits={**LIMITS, "max_parallel": 3}, batch_size=1)
    judge_settings(root, rehearsal={"latency": 0.4}, concurrency=1)
    commands = [Command(root, tmp_path / "first")]
    try:
        eventually(lambda: all(journal(root, model) for model in EXAMPLES), "games of all batches")
        commands.append(Command(root, tmp_path / "second"))
        eventually(lambda: "left alone" in commands[1].log.read_text(), "the second command follows too")
        assert kill_one(root, "engine")
        eventually(lambda: any("handed over again as" in each.log.read_text() for each in commands), "another start")
        assert not any("completed" in each.log.read_text() for each in commands)
        eventually(lambda: all(each.ended() for each in commands), "the campaign's end")
    finally:
        for each in commands:
            each.end()
    assert [each.starts for each in commands] == [1, 1]
    assert sum(each.log.read_text().count("handed over again as") for each in commands) == 1
    assert games_of(root, EXAMPLES) == verdicts_of(root, EXAMPLES)
    assert len(games_of(root, EXAMPLES)) == 72
    assert_nothing_runs(root)


def test_nothing_is_lost_or_played_twice_in_a_storm(tmp_path: Path) -> None:
    calm = make_workspace(tmp_path / "calm", real=True)
    judge_now(calm, "--all", "--batch-size", "1")
    root = make_workspace(tmp_path / "storm", real=True, limits=LIMITS)
    judge_settings(root, rehearsal={"latency": 0.3}, concurrency=32)
    running = Command(root, tmp_path / "log")
    try:
        killed = storm(root, running, random.Random(20))
        eventually(running.ended, "the campaign's end", timeout=600)
    finally:
        running.end()
    assert len(killed) == KILLS, f"only {killed} were killed before the end:\n{running.log.read_text()}"
    games = games_of(root, TULU)
    assert games == games_of(calm, TULU)
    assert repeated(games) == []
    verdicts = verdicts_of(root, TULU)
    assert verdicts == verdicts_of(calm, TULU) == games
    questions, theirs = read_questions(root), read_answers(root, BASELINE)
    for model in TULU:
        assert_complete(read_rows(rows_file(root, model)), questions, theirs=theirs, ours=read_answers(root, model))
    assert_nothing_runs(root)
