"""The spec's sequence, message by message: who sends what, in the very shapes that ao.send has in the spec.

Reads what came of it from replies only; balances are counted by the reader."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automate.pool_places import PoolPlaces
from automate.pools.desk import Desk
from automate.pools.keys import GENESIS, Key, load_key
from automate.pools.messages import Receipt
from tests.unit.pool_support import named_key

DAY = 86_400_000
HOUR = 3_600_000
FUNDS = 1000
ROWS = [{"context": f"It's {number} o'clock in Ann's \"café\".", "question": f"Why did 小明 go, {number}?",
         "answerA": "thirst", "answerB": "it's the rain", "answerC": "); DROP TABLE datasets; --",
         "result": str(number % 3 + 1)} for number in range(12)]


@dataclass
class Sequence:
    """A workspace, people, a clock that is moved by hand."""

    places: PoolPlaces
    desk: Desk
    now: Callable[[], int]
    anchors: int = 0
    ids: dict[str, str] = field(default_factory=dict)

    def key(self, who: str) -> Key:
        return load_key(self.places.key(GENESIS)) if who == "owner" else named_key(who)

    def ao_send(self, who: str, **fields: Any) -> Receipt:
        """`ao.send({...})`: Target, Data, and every other field at the root as a tag; X_Dataset is X-Dataset."""
        self.anchors += 1
        given = {name.replace("_", "-"): value for name, value in fields.items()}
        tags = {name: value for name, value in given.items() if name not in ("Target", "Action", "Data")}
        signed = self.key(who).sign(given["Target"], given["Action"], given.get("Data", ""), tags,
                                    anchor=str(self.anchors), timestamp=self.now())
        root = {name: value for name, value in signed.items() if name not in ("Tags", "Action")}
        return self.desk.send({**root, **given})

    def must(self, who: str, **fields: Any) -> Receipt:
        receipt = self.ao_send(who, **fields)
        assert receipt.state == "handled", receipt
        return receipt

    def balance(self, account: str) -> int:
        told = self.must("anybody", Target=self.ids["token"], Action="Balance", Recipient=account)
        return int(tags_of(answer(told, "Balance-Response"))["Balance"])

    def leaderboard(self) -> list[dict[str, Any]]:
        """`Data = <pool id>`, as the spec has it."""
        told = self.must("ben", Target=self.ids["pool"], Action="Leaderboard", Data=self.ids["benchmark"])
        rows: list[dict[str, Any]] = json.loads(answer(told, "Leaderboard-Response")["Data"])
        return rows

    # --- the sequence -----------------------------------------------------------------------------------
    def spawn(self, folder: Path) -> None:
        """scripts/spawn.ts and siqa.ts: processes, Init, Load-Data by path, twice."""
        found: Any = self.desk.ask("processes")
        self.ids = {row["kind"]: row["id"] for row in found}
        spawned = self.must("owner", Target=self.ids["pool"], Action="Spawn",
                            Data=json.dumps({"name": "siqa", "kind": "siqa"}))
        self.ids["siqa"] = json.loads(answer(spawned, "Spawn-Response")["Data"])["process"]
        self.must("owner", Target=self.ids["siqa"], Action="Init")
        file = folder / "siqa-dev.json"
        file.write_text(json.dumps([{"id": number, **row} for number, row in enumerate(ROWS)], ensure_ascii=False))
        for added, known in ((len(ROWS), 0), (0, len(ROWS))):
            loaded = self.must("owner", Target=self.ids["siqa"], Action="Load-Data", Data=str(file))
            told = json.loads(answer(loaded, "Load-Data-Response")["Data"])
            assert (told["added"], told["known"], told["bad"], told["num_samples"]) == (added, known, 0, len(ROWS))
        info = json.loads(answer(self.must("ann", Target=self.ids["siqa"], Action="Info"), "Info-Response")["Data"])
        assert (info["num_samples"], info["router"]) == (len(ROWS), self.ids["router"])

    def fund(self, inferences: int) -> None:
        """Mint; Transfer with X-Dataset and X-Allocation; scripts/wrappedAR.ts: money for the data set's inferences."""
        self.must("owner", Target=self.ids["token"], Action="Mint", Recipient=named_key("ann").address, Quantity="5000")
        opened = self.must("ann", Target=self.ids["token"], Action="Transfer", Recipient=self.ids["pool"],
                           Quantity=str(FUNDS), X_Dataset=self.ids["siqa"], X_Allocation="ArithmeticDecrease")
        made = json.loads(answer(opened, "Create-Pool-Response")["Data"])
        assert (made["funder"], made["funds"]) == (named_key("ann").address, str(FUNDS))
        assert made["allocation"] == "ArithmeticDecrease"
        assert made["endTime"] - made["startTime"] == 30 * DAY
        assert tags_of(answer(opened, "Debit-Notice"))["X-Allocation"] == "ArithmeticDecrease"
        self.ids["benchmark"] = made["pool"]
        self.must("ann", Target=self.ids["token"], Action="Transfer", Recipient=self.ids["siqa"],
                  Quantity=str(inferences))

    def join(self, who: str, name: str, data_tx: str) -> None:
        """Model upload, then Join-Pool as the spec has it: with the pool's id and the model's process id."""
        added = self.must(who, Target=self.ids["pool"], Action="Add-Model", Data=json.dumps(
            {"name": name, "inference_process": self.ids["router"], "data_tx": data_tx}))
        self.ids[name] = json.loads(answer(added, "Add-Model-Response")["Data"])["model"]
        joined = self.must(who, Target=self.ids["pool"], Action="Join-Pool",
                           Data=f'{{"dataset": "{self.ids["benchmark"]}", "model": "{self.ids[name]}"}}')
        assert answer(joined, "Join-Pool-Response")

    def refused(self, who: str, says: str, **fields: Any) -> None:
        receipt = self.ao_send(who, **fields)
        assert receipt.state == "refused" and says in tags_of(receipt.replies[-1])["Error"], receipt


def answer(receipt: Receipt, action: str) -> Mapping[str, Any]:
    (found,) = [reply for reply in receipt.replies if reply["Action"] == action]
    return found


def tags_of(reply: Mapping[str, Any]) -> dict[str, str]:
    return {tag["name"]: tag["value"] for tag in reply["Tags"]}


def rewards(right: Mapping[str, int], joined: list[str]) -> dict[str, int]:
    """What ArithmeticDecrease gives of FUNDS, by the facts' formula: who joined first goes first among equals."""
    ranked = sorted(joined, key=lambda name: -right[name])
    weights = range(len(ranked), 0, -1)
    return {name: FUNDS * weight // sum(weights) for name, weight in zip(ranked, weights, strict=True)}
