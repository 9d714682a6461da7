"""Loads 100,000 rows into a data set, as JSON lines and as CSV, next to a bare executemany of the same rows.

    python benchmarks/pool_load.py [--rows 100000] [--rounds 3]

Never measures a warm page cache against a cold one: every round makes files and databases anew, by turns."""

from __future__ import annotations

import argparse
import csv
import json
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

from automate.pool_places import PoolPlaces
from automate.pools.exchange import Exchange
from automate.pools.keys import GENESIS, load_key, verified
from automate.pools.store import open_store
from automate.settings_pools import Pools

NAMES = ("context", "question", "answerA", "answerB", "answerC", "result")
BARE = ("CREATE TABLE questions (id INTEGER PRIMARY KEY AUTOINCREMENT, context TEXT NOT NULL, question TEXT NOT NULL, "
        "answerA TEXT NOT NULL, answerB TEXT NOT NULL, answerC TEXT NOT NULL, result TEXT NOT NULL)")
INSERT = "INSERT INTO questions (context, question, answerA, answerB, answerC, result) VALUES (?, ?, ?, ?, ?, ?)"


def rows(count: int) -> list[dict[str, str]]:
    """Rows of the size of Social IQA's: about 180 bytes of text."""
    people = ("Kim", "O'Neil", "小明", "Zoë", "Sasha")
    return [{"context": f"{people[at % 5]} didn't find the \"blue\" folder number {at} and asked a friend to look on.",
             "question": f"What will {people[at % 5]} want to do next?", "answerA": f"thank the friend {at}",
             "answerB": "go home and rest", "answerC": "look in the other room", "result": str(at % 3 + 1)}
            for at in range(count)]


def loaded(folder: Path, source: Path, expected: tuple[int, int]) -> tuple[float, float]:
    """Seconds that Load-Data of this file takes, from the signed message to its answer; and once more for the same."""
    times = []
    with open_store(PoolPlaces(folder, Pools()), now=1, mounts=()) as store:
        places = PoolPlaces(folder, Pools())
        exchange, key = Exchange(store, places.settings, lambda: 1), load_key(places.key(GENESIS))

        def send(target: str, action: str, data: str) -> str:
            receipt = exchange.receive([verified(key.sign(target, action, data, timestamp=1), "local")])[0]
            if receipt.state != "handled":
                raise SystemExit(f"{action}: {receipt.error}")
            return str(receipt.replies[-1]["Data"])

        send(exchange.pool, "Spawn", json.dumps({"name": "set", "kind": "siqa"}))
        dataset = str(store.db.execute("SELECT id FROM processes WHERE name = 'set'").fetchone()[0])
        send(dataset, "Init", "")
        for added, known in (expected, expected[::-1]):
            before = time.perf_counter()
            answer = json.loads(send(dataset, "Load-Data", str(source)))
            times.append(time.perf_counter() - before)
            if (answer["added"], answer["known"], answer["bad"]) != (added, known, 0):
                raise SystemExit(f"not loaded whole: {answer}")
    return times[0], times[1]


def bare(folder: Path, source: Path) -> float:
    """Seconds that the standard library takes to read the same JSON lines and insert them, with the same durability."""
    before = time.perf_counter()
    with source.open(encoding="utf-8") as file:
        values = [tuple(row[name] for name in NAMES) for row in map(json.loads, file)]
    connection = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(BARE)
    connection.execute("BEGIN")
    connection.executemany(INSERT, values)
    connection.execute("COMMIT")
    connection.close()
    return time.perf_counter() - before


def one_round(made: list[dict[str, str]]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines, table, array = folder / "rows.jsonl", folder / "rows.csv", folder / "rows.json"
        lines.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made), encoding="utf-8")
        array.write_text(json.dumps(made, ensure_ascii=False), encoding="utf-8")
        with table.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, NAMES)
            writer.writeheader()
            writer.writerows(made)
        result = {"bare sqlite3 executemany, JSON lines": bare(folder, lines)}
        for what, source in (("JSON lines", lines), ("JSON array", array), ("CSV", table)):
            (folder / source.suffix[1:]).mkdir()
            first, again = loaded(folder / source.suffix[1:], source, (len(made), 0))
            result |= {f"Load-Data, {what}": first, f"Load-Data, {what}, again": again}
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    made = rows(given.rows)
    rounds = [one_round(made) for _ in range(given.rounds)]
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    base = medians["bare sqlite3 executemany, JSON lines"]
    print(f"| {given.rows:,} rows | s (median of {given.rounds}) | least to most | next to bare |\n|---|---|---|---|")
    for name in rounds[0]:
        times = [one[name] for one in rounds]
        print(f"| {name} | {medians[name]:.2f} | {min(times):.2f} to {max(times):.2f} | {medians[name] / base:.2f} |")


if __name__ == "__main__":
    main()
