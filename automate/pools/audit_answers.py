"""A pool's answers, each with its prompt, attempts, worker and times; what the leaderboard says against them.

Never changes anything, and never believes a count that it can make anew from the answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from automate.pools.evaluation import counted
from automate.pools.exchange import Exchange, Process
from automate.pools.kinds.base import Kind, Question
from automate.pools.kinds.chosen import kind_of
from automate.pools.store import Row, Statements

_OF_POOL = "SELECT model FROM pool_models WHERE pool = ?"
_EVALUATIONS = f"""
SELECT evaluations.*, models.name AS model, questions.context, questions.question, questions.options,
  questions.result, questions.dataset AS home
FROM evaluations JOIN models ON models.id = evaluations.model_id
LEFT JOIN questions ON questions.id = evaluations.dataset_id
WHERE evaluations.dataset = ? AND evaluations.model_id IN ({_OF_POOL}) ORDER BY evaluations.id"""  # noqa: S608
_ATTEMPTS = f"""
SELECT attempts.*, messages.sender AS sender, messages.action AS action, messages.state AS state,
  messages.data AS data, messages.target AS target, messages.digest AS digest
FROM attempts JOIN evaluations ON evaluations.id = attempts.evaluation
LEFT JOIN messages ON messages.id = attempts.message
WHERE evaluations.dataset = ? AND evaluations.model_id IN ({_OF_POOL})
ORDER BY attempts.started, attempts.reference"""  # noqa: S608


def traced(db: Statements, pool: Row) -> dict[str, object]:
    """Models with the leaderboard's counts beside those made anew, evaluations with their attempts, and strays."""
    attempts = _attempts(db, pool)
    return {
        "models": [{**dict(row), "counted": dict(_counted(db, pool, row["model"]))} for row in _models(db, pool)],
        "evaluations": [{**_evaluation(row), "tries": [_attempt(one) for one in attempts.get(row["id"], ())]}
                        for row in _evaluations(db, pool)],
        "strays": [dict(row) for row in _strays(db, pool)],
    }


def problems(exchange: Exchange, pool: Row) -> Iterator[str]:
    """What doesn't hold of this pool's evaluations, and of the counts on its leaderboard."""
    db, kind = exchange.store.db, _kind(exchange, pool["dataset"])
    attempts = _attempts(db, pool)
    for row in _evaluations(db, pool):
        for problem in (*_asked(row, pool), *_tried(row, attempts.get(row["id"], [])), *_understood(row, kind)):
            yield f"evaluation {row['id']} ({row['model']}): {problem}"
    for row in _models(db, pool):
        for problem in (*_told(db, row), *_board(_counted(db, pool, row["model"]), row, pool)):
            yield f"leaderboard, {row['name']}: {problem}"


def _asked(row: Row, pool: Row) -> Iterator[str]:
    if row["result"] is None or row["home"] != pool["dataset"]:
        yield f"its question {row['dataset_id']} is not one of the pool's data set"
    elif row["result"] != row["correct_answer"]:
        yield f"its right answer is {row['correct_answer']!r}, and its question's {row['result']!r}"


def _tried(row: Row, attempts: list[Row]) -> Iterator[str]:
    """An answered evaluation has exactly one attempt that brought an answer, by a message, and shows that answer."""
    answered = [attempt for attempt in attempts if attempt["outcome"] == "answered"]
    if len(answered) != (row["state"] == "answered"):
        yield f"it is {row['state']}, and {len(answered)} attempts brought an answer"
    if row["state"] != "answered" and row["prediction"] is not None:
        yield f"it is {row['state']}, and has a prediction"
    running = [attempt["reference"] for attempt in attempts if attempt["outcome"] == "started"]
    if running != ([row["inference_reference"]] if row["state"] == "started" else []):
        yield f"it is {row['state']}, and {len(running)} attempts are under way"
    for attempt in answered:
        yield from _brought(row, attempt)


def _brought(row: Row, attempt: Row) -> Iterator[str]:
    shown = (row["inference_reference"], row["answer"], row["worker"])
    if shown != (attempt["reference"], attempt["answer"], attempt["worker"]):
        yield (f"its answer {row['answer']!r} is not the one of its attempt {attempt['reference']},"
               f" {attempt['answer']!r}")
    if (attempt["action"], attempt["state"], attempt["target"]) != ("Inference-Response", "handled", row["dataset"]):
        yield f"no handled Inference-Response brought the answer of its attempt {attempt['reference']}"
    elif attempt["data"] is not None and digest(attempt["data"]) != attempt["digest"]:
        yield f"the message of its attempt {attempt['reference']} is not what was sent: its digest is another"
    elif attempt["data"] is not None and _result(attempt["data"]) != attempt["answer"]:
        yield (f"the message of its attempt {attempt['reference']} says {_result(attempt['data'])!r}, and the attempt"
               f" {attempt['answer']!r}")


def _understood(row: Row, kind: Kind | None) -> Iterator[str]:
    """The prediction is what the data set's result retriever makes of the answer."""
    if kind is None or row["state"] != "answered" or row["answer"] is None or row["result"] is None:
        return
    question = Question(row["context"], row["question"], tuple(json.loads(row["options"])), row["result"])
    again = kind.retrieve(row["answer"], question)
    if kind.correct(again, row["correct_answer"]):
        again = row["correct_answer"]
    if again != row["prediction"]:
        yield f"its answer {row['answer']!r} reads as {again!r}, and its prediction is {row['prediction']!r}"


def _told(db: Statements, row: Row) -> Iterator[str]:
    """What the pool keeps of a model is what the data set's last Score-Response said."""
    if row["updated_by"] is None:
        if row["correct"] or row["answered"] or row["failed"] or row["score"] or row["progress"]:
            yield "it has counts that no Score-Response brought"
        return
    message = db.execute("SELECT * FROM messages WHERE id = ?", (row["updated_by"],)).fetchone()
    if message is None or (message["action"], message["sender"]) != ("Score-Response", row["dataset"]):
        yield f"{row['updated_by']} is no Score-Response of the pool's data set"
        return
    if digest(message["data"] or "") != message["digest"]:
        yield f"the Score-Response {row['updated_by']} is not what was sent: its digest is another"
        return
    said = json.loads(message["data"])
    for name in ("correct", "answered", "failed", "total", "score", "progress"):
        if name in said and said[name] != row[name]:
            yield f"{name} is {row[name]}, and the Score-Response said {said[name]}"


def _board(anew: Row, row: Row, pool: Row) -> Iterator[str]:
    """The counts against the evaluations: equal where nothing was answered since, and never more than there are."""
    same = row["updated"] is not None and (anew["last"] is None or anew["last"] < row["updated"])
    for name in ("correct", "answered", "failed"):
        if (row[name] != anew[name]) if same else (row[name] > anew[name]):
            yield f"{name} is {row[name]}, and the evaluations have {anew[name]}"
    if (row["updated"] or 0) >= pool["end_time"] and row["total"] != anew["total"]:
        yield f"total is {row['total']}, and {anew['total']} questions were there before the pool's end"


def _models(db: Statements, pool: Row) -> list[Row]:
    return db.execute(
        "SELECT pool_models.*, models.name AS name, models.process AS process, ? AS dataset FROM pool_models"
        " JOIN models ON models.id = pool_models.model WHERE pool = ? ORDER BY pool_models.rowid",
        (pool["dataset"], pool["id"])).fetchall()


def _counted(db: Statements, pool: Row, model: int) -> Row:
    """Made anew, of the questions that were there before the pool's end."""
    return counted(db, pool["dataset"], model, pool["end_time"])


def _evaluations(db: Statements, pool: Row) -> Iterator[Row]:
    yield from db.execute(_EVALUATIONS, (pool["dataset"], pool["id"]))


def _attempts(db: Statements, pool: Row) -> Mapping[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in db.execute(_ATTEMPTS, (pool["dataset"], pool["id"])):
        found.setdefault(row["evaluation"], []).append(row)
    return found


def _strays(db: Statements, pool: Row) -> list[Row]:
    """Answers that changed nothing: of this pool's attempts, or received by its data set."""
    return db.execute(
        "SELECT strays.* FROM strays LEFT JOIN messages ON messages.id = strays.message WHERE messages.target = ?"
        " OR strays.reference IN (SELECT reference FROM attempts JOIN evaluations ON evaluations.id ="
        " attempts.evaluation WHERE evaluations.dataset = ?) ORDER BY strays.id",
        (pool["dataset"], pool["dataset"])).fetchall()


def _evaluation(row: Row) -> dict[str, object]:
    names = ("id", "model", "dataset_id", "prompt", "correct_answer", "prediction", "answer", "worker", "state",
             "error", "attempts", "inference_reference", "inference_start_time", "inference_end_time")
    return {name: row[name] for name in names}


def _attempt(row: Row) -> dict[str, object]:
    return {name: row[name] for name in ("reference", "started", "ended", "outcome", "answer", "worker", "message",
                                        "prompt")}


def _kind(exchange: Exchange, dataset: str) -> Kind | None:
    row = exchange.store.db.execute("SELECT * FROM processes WHERE id = ?", (dataset,)).fetchone()
    if row is None:
        return None
    process = Process(row["id"], row["kind"], row["name"], row["owner"], row["module"], json.loads(row["settings"]),
                      bool(row["ready"]))
    return kind_of(exchange.context(process))


def digest(data: str) -> str:
    """Of a message's Data, as the table of messages keeps it."""
    return hashlib.sha256(data.encode()).hexdigest()


def _result(data: str) -> object:
    said = json.loads(data)
    return said.get("result") if isinstance(said, dict) else None
