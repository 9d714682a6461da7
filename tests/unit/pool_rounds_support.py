"""What tests of evaluations, the router and rounds share: a data set with a model, and a job's record files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from automate.pools.messages import Receipt
from automate.pools.round_records import Answer, answer_record, worker_record
from automate.pools.rounds import RoundSpec, hand_in, make_round, read_work
from tests.unit.pool_support import Bench


def add_model(bench: Bench, name: str = "tiny") -> str:
    """The process id of a new model."""
    made = f"process-of-{name}"
    with bench.store.transaction():
        bench.store.db.execute(
            "INSERT INTO models (name, inference_process, data_tx, process, owner, added) VALUES (?, ?, ?, ?, ?, ?)",
            (name, bench.exchange.router, f"org/{name}", made, bench.address("trainer"), bench.clock.now))
    return made


def handled(receipt: Receipt) -> Receipt:
    assert receipt.state == "handled", receipt
    return receipt


def begun(bench: Bench, *models: str, rows: int | None = None) -> str:
    """A data set whose rows wait at the router for these models (tiny)."""
    made = siqa(bench, rows)
    for model in models or ("tiny",):
        add_model(bench, model)
        handled(bench.send("owner", "siqa", "Benchmark", model))
    handled(bench.send("owner", "siqa", "Evaluate"))
    return made


def siqa(bench: Bench, rows: int | None = None) -> str:
    if rows is None:
        return bench.dataset()
    return bench.dataset(rows=[{"context": f"It's {n}.", "question": "Which?", "answerA": "a", "answerB": "b",
                                "answerC": "c", "result": str(n % 3 + 1)} for n in range(rows)])


def at_work(bench: Bench, *workers: str) -> RoundSpec:
    """A round of all that waits, with a job that has these servers (tiny.1), and has answered nothing yet."""
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    append(bench, spec.name, [worker_record(one, one.split(".")[0], "joined") for one in workers or ("tiny.1",)])
    hand_in(bench.exchange, bench.places)
    return spec


def job(bench: Bench, spec: RoundSpec, *, worker: str = "tiny.1", says: str = "A", only: int | None = None,
        file: str = "1.jsonl") -> Path:
    """What a job appends: its worker joins and answers all of its model's lines (the first `only` ones)."""
    work = [one for one in read_work(bench.places, spec.name) if one.model == worker.split(".")[0]]
    lines: list[dict[str, object]] = [worker_record(worker, worker.split(".")[0], "joined")]
    lines += [answer_record(Answer(one.reference, says, worker, 1000 + n, 2000 + n))
              for n, one in enumerate(work[:only])]
    return append(bench, spec.name, lines, file)


def append(bench: Bench, name: str, lines: Sequence[object], file: str = "1.jsonl") -> Path:
    path = bench.places.answers(name) / file
    with path.open("a") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)
    return path


def states(bench: Bench, table: str = "evaluations") -> dict[str, int]:
    return {str(row["state"]): int(row["n"]) for row in bench.rows(
        f"SELECT state, count(*) AS n FROM {table} GROUP BY state ORDER BY state")}
