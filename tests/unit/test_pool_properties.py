"""Random orders of messages of several people, with crashes between any two statements: no money is made or lost, each
pool is paid once, no answer counts twice, scores are what the answers give."""

from __future__ import annotations

import json
import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from automate.pools import schedule
from automate.pools.allocation import RULES
from tests.unit.pool_property_rig import MODELS, PEOPLE, World, question
from tests.unit.pool_support import DAY, HOUR, reply_named

MORE = int(os.environ.get("FLOCK_HPC_POOL_EXAMPLES", "45"))
"""How many plays; a thousand take some minutes."""
CRASHES = st.lists(st.integers(1, 90), max_size=2)
PERSON = st.sampled_from(PEOPLE)
ACCOUNT = st.sampled_from((*PEOPLE, "pool", "router", "siqa"))
MODEL = st.sampled_from(sorted(MODELS))
QUANTITY = st.sampled_from(("1", "7", "45", "100", "1000000", "0", "-5", "1.5", "ten", "9" * 25, ""))
LETTER = st.sampled_from(("A", "B", "C", "N", "Answer: C", ""))
ANY = st.integers(0, 1000)


class Pools(RuleBasedStateMachine):
    """People, the clock, a job and a worker, in any order."""

    @initialize(price=st.sampled_from((0, 3, 3)), rules=st.lists(st.sampled_from(sorted(RULES)), max_size=2),
                models=st.sets(MODEL, min_size=1), money=st.sampled_from((4, 100)))
    def begin(self, price: int, rules: list[str], models: set[str], money: int) -> None:
        """With some pools and models in them, mostly, so that there is something to do."""
        self.world = World(price)
        self.bench = self.world.bench
        self.mint("owner", "siqa", str(money), [])
        for number, name in enumerate(rules):
            self.fund("ann", 50 + number, "siqa", name, "1", [])
            for model in sorted(models):
                self.join_with_ones_own(model, number, [])
        self.evaluate("", True, [])
        for number, who in enumerate(PEOPLE):
            self.buy(who, "ben-1", "3", number, [])
            self.buy(who, "cleo-1", "3", number, [])

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.close()

    def account(self, name: str) -> str:
        return self.bench.address(name) if name in PEOPLE else self.bench.id(name)

    # --- money ------------------------------------------------------------------------------------------
    @rule(who=st.sampled_from(("owner", "owner", "mallory")), to=ACCOUNT, quantity=QUANTITY, crashes=CRASHES)
    def mint(self, who: str, to: str, quantity: str, crashes: list[int]) -> None:
        receipt = self.world.say(who, "token", "Mint", crashes=crashes, Recipient=self.account(to), Quantity=quantity)
        if receipt.state == "handled":
            assert who == "owner"
            self.world.minted += int(quantity)

    @rule(who=PERSON, to=ACCOUNT, quantity=QUANTITY, cast=st.booleans(), crashes=CRASHES)
    def transfer(self, who: str, to: str, quantity: str, cast: bool, crashes: list[int]) -> None:
        tags = {"Cast": "1"} if cast else {}
        self.world.say(who, "token", "Transfer", crashes=crashes, Recipient=self.account(to), Quantity=quantity, **tags)

    @rule(who=PERSON, quantity=st.integers(1, 70), dataset=st.sampled_from(("siqa",) * 7 + ("none", "")),
          allocation=st.sampled_from((*sorted(RULES) * 2, "Unknown")), days=st.sampled_from(("1", "1", "3", "3", "0")),
          crashes=CRASHES)
    def fund(self, who: str, quantity: int, dataset: str, allocation: str, days: str, crashes: list[int]) -> None:
        if self.bench.balance(who) < quantity:
            self.mint("owner", who, "100", [])
        self.world.say(who, "token", "Transfer", crashes=crashes, Recipient=self.bench.id("pool"), Quantity=quantity,
                       X_Dataset=dataset, X_Allocation=allocation, X_Days=days)

    # --- pools ------------------------------------------------------------------------------------------
    def pool(self, number: int) -> str:
        pools = self.bench.rows("SELECT id FROM pools ORDER BY rowid")
        return str(pools[number % len(pools)]["id"]) if pools else "siqa"

    @rule(who=PERSON, model=MODEL, pool=ANY, crashes=CRASHES)
    def join(self, who: str, model: str, pool: int, crashes: list[int]) -> None:
        receipt = self.world.say(who, "pool", "Join-Pool", {"dataset": self.pool(pool), "model": model}, crashes)
        assert MODELS[model] == who or receipt.state == "refused"

    @rule(model=MODEL, pool=ANY, crashes=CRASHES)
    def join_with_ones_own(self, model: str, pool: int, crashes: list[int]) -> None:
        self.join(MODELS[model], model, pool, crashes)

    @rule(who=st.sampled_from((*PEOPLE, "clock")), action=st.sampled_from(("Update-Leaderboard", "Allocate-Rewards")),
          pool=ANY, crashes=CRASHES)
    def ask(self, who: str, action: str, pool: int, crashes: list[int]) -> None:
        data = {"dataset": self.pool(pool)}
        if who == "clock":
            self.world.job("owner", "pool", action, data, crashes, via="clock")
        else:
            self.world.say(who, "pool", action, data, crashes)

    @rule(who=st.sampled_from(("ann", "owner", "siqa", "pool")), model=MODEL, correct=st.integers(0, 3))
    def forge_a_score(self, who: str, model: str, correct: int) -> None:
        """Neither people nor a job, nor the pool itself, can say what a model's score is."""
        data = {"correct": correct, "total": 3, "unevaluated": 0, "score": 1, "progress": 1}
        tags = {"Model": self.bench.one("SELECT process FROM models WHERE name = ?", model)}
        receipt = self.world.job(self.bench.id("pool"), "pool", "Score-Response", data, **tags) if who == "pool" else (
            self.world.say("ann" if who == "siqa" else who, "pool", "Score-Response", data, **tags))
        assert receipt.state == "refused"

    # --- evaluation -------------------------------------------------------------------------------------
    @rule(limit=st.sampled_from(("", "", "1", "100", "-1")), via=st.booleans(), crashes=CRASHES)
    def evaluate(self, limit: str, via: bool, crashes: list[int]) -> None:
        if via:
            self.world.job("owner", "siqa", "Evaluate", limit, crashes, via="clock")
        else:
            self.world.say("owner", "siqa", "Evaluate", limit, crashes)

    @rule(crashes=CRASHES)
    def load_one_more(self, crashes: list[int]) -> None:
        count = self.bench.one("SELECT COUNT(*) FROM questions")
        if count < 5:
            self.world.say("owner", "siqa", "Load-Data", [question(count), question(0)], crashes)
            assert self.bench.one("SELECT COUNT(*) FROM questions") == count + 1

    def references(self) -> list[dict[str, str]]:
        return self.bench.rows("SELECT reference, model FROM inferences ORDER BY rowid")

    @precondition(lambda self: bool(self.references()))
    @rule(number=ANY, letter=LETTER, crashes=CRASHES)
    def answer(self, number: int, letter: str, crashes: list[int]) -> None:
        """By the worker that has it, to any reference that ever was: new, answered before, expired."""
        found = self.references()
        row = found[-1 - number % len(found)]
        state = self.bench.one("SELECT state FROM inferences WHERE reference = ?", row["reference"])
        if state in ("queued", "sent"):
            self.world.said.setdefault(row["reference"], []).append(letter)
        self.world.job(f"{row['model']}.w", "router", "Inference-Response", {"id": row["reference"], "result": letter},
                       crashes)

    @precondition(lambda self: bool(self.references()))
    @rule(crashes=CRASHES)
    def answer_all(self, crashes: list[int]) -> None:
        for number in range(len(self.references())):
            self.answer(number, "A", crashes if number == 0 else [])

    @precondition(lambda self: bool(self.references()))
    @rule(number=ANY, who=st.sampled_from(("ann", "other worker", "nobody", "router")), crashes=CRASHES)
    def forge_an_answer(self, number: int, who: str, crashes: list[int]) -> None:
        """Somebody else, another model's worker, one that is unknown; straight to the data set."""
        found = self.references()
        row = found[number % len(found)]
        data = {"id": row["reference"], "model": row["model"], "result": "A"}
        before = self.bench.dump("messages", "strays")
        if who == "ann":
            self.world.say("ann", "router", "Inference-Response", data, crashes)
            self.world.say("ann", "siqa", "Inference-Response", data)
        elif who == "router":
            self.world.job(f"{row['model']}.w", "siqa", "Inference-Response", data, crashes)
        else:
            other = next(f"{model}.w" for model in MODELS if model != row["model"])
            sender = other if who == "other worker" else "nobody.w"
            self.world.job(sender, "router", "Inference-Response", data, crashes)
        assert self.bench.dump("messages", "strays") == before

    @precondition(lambda self: bool(self.references()))
    @rule(number=ANY, crashes=CRASHES)
    def fail(self, number: int, crashes: list[int]) -> None:
        found = self.references()
        row = found[number % len(found)]
        self.world.job(f"{row['model']}.w", "router", "Inference-Response", {"id": row["reference"], "error": "no"},
                       crashes)

    @precondition(lambda self: bool(self.references()))
    @rule(number=ANY, crashes=CRASHES)
    def time_out(self, number: int, crashes: list[int]) -> None:
        """What was under way is asked again or given up; then an answer comes, maybe to the old reference."""
        self.wait(1)
        self.evaluate("", True, crashes)
        self.answer(number, "B", crashes)

    @rule(crashes=CRASHES)
    def send_a_round(self, crashes: list[int]) -> None:
        """All that waits, to a job with a server of each model; from now on it may time out."""
        waiting = [row["reference"] for row in self.bench.rows("SELECT reference FROM inferences WHERE state = 'queued'"
                                                               " ORDER BY rowid")]
        if waiting:
            name = f"round-{self.world.number}"
            self.world.job("owner", "router", "Round-Made", {"round": name, "references": waiting}, crashes)
            for model in MODELS:
                self.world.job("owner", "router", "Register-Worker", {"model": model, "worker": f"{model}.{name}",
                                                                      "fleet": name})

    @rule(crashes=CRASHES)
    def end_a_round(self, crashes: list[int]) -> None:
        for row in self.bench.rows("SELECT DISTINCT round FROM inferences WHERE state = 'sent'")[:1]:
            self.world.job("owner", "router", "Round-Over", {"round": row["round"], "page": 0}, crashes)

    # --- inferences that people pay for -----------------------------------------------------------------
    @rule(who=PERSON, model=MODEL, quantity=st.sampled_from(("2", "3", "3", "8")), number=st.integers(0, 20),
          crashes=CRASHES)
    def buy(self, who: str, model: str, quantity: str, number: int, crashes: list[int]) -> None:
        """Too little, enough, too much; the same reference again."""
        if self.bench.balance(who) < 8:
            self.mint("owner", who, "7", [])
        self.world.say(who, "token", "Transfer", crashes=crashes, Recipient=self.bench.id("router"), Quantity=quantity,
                       X_Model=model, X_Prompt="Why?", X_Reference=number)

    @precondition(lambda self: bool(self.references()))
    @rule(who=PERSON, numbers=st.lists(ANY, min_size=1, max_size=4), times=st.integers(1, 3), crashes=CRASHES)
    def cancel(self, who: str, numbers: list[int], times: int, crashes: list[int]) -> None:
        """One's own and others', each several times."""
        self.cancel_of(self.references(), who, numbers, times, crashes)

    @rule(who=PERSON, number=ANY, times=st.integers(1, 4), crashes=CRASHES)
    def cancel_ones_own(self, who: str, number: int, times: int, crashes: list[int]) -> None:
        mine = self.bench.rows("SELECT reference FROM inferences WHERE requester = ? ORDER BY rowid",
                               self.bench.address(who))
        if mine:
            self.cancel_of(mine, who, [number, number + 1], times, crashes)

    def cancel_of(self, found: list[dict[str, str]], who: str, numbers: list[int], times: int,
                  crashes: list[int]) -> None:
        named = [found[-1 - number % len(found)]["reference"] for number in numbers] * times
        self.world.say(who, "router", "Cancel-Inference", {"references": named}, crashes)

    @rule(refusing=st.booleans())
    def refuse_refunds(self, refusing: bool) -> None:
        self.world.refusing = refusing

    @rule(model=MODEL)
    def score_is_what_the_answers_give(self, model: str) -> None:
        receipt = self.world.say("mallory", "siqa", "Score", model)
        told = json.loads(reply_named(receipt, "Score-Response")["Data"])
        right, answered, total = self.world.score(model)
        assert (told["correct"], told["answered"], told["total"]) == (right, answered, total)
        assert told["score"] == (right / answered if answered else 0)
        assert told["progress"] == answered / total

    # --- everything -------------------------------------------------------------------------------------
    @rule(number=ANY, crashes=CRASHES)
    def replay(self, number: int, crashes: list[int]) -> None:
        """Any message that ever was, again: nothing at all changes."""
        before = self.bench.dump()
        message = self.world.sent[number % len(self.world.sent)]
        assert self.world.give(message, crashes).replayed
        assert self.bench.dump() == before

    @rule(limits=st.lists(st.sampled_from(("1", "2", "100")), min_size=2, max_size=3), crashes=CRASHES)
    def evaluate_several_at_once(self, limits: list[str], crashes: list[int]) -> None:
        """In one batch, so that each sees the money that the others are about to spend."""
        messages = [self.bench.message("owner", "siqa", "Evaluate", limit) for limit in limits]
        self.world.live(lambda: self.bench.exchange.receive(messages), crashes)

    @rule(crashes=CRASHES)
    def tick(self, crashes: list[int]) -> None:
        """The real clock; twice is once."""
        self.world.live(lambda: schedule.tick(self.bench.exchange, self.bench.clock.now), crashes)
        before = self.bench.dump("ticks")
        done = schedule.tick(self.bench.exchange, self.bench.clock.now)
        assert not any(done.values()) and self.bench.dump("ticks") == before

    @rule(hours=st.sampled_from((0, 1, 12, 24, 72)))
    def wait(self, hours: int) -> None:
        self.bench.clock.forward(hours * HOUR + 1)

    @rule(crashes=CRASHES)
    def restart(self, crashes: list[int]) -> None:
        self.bench.reopen()
        assert self.bench.exchange.deliver() == 0

    @invariant()
    def all_holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()


class PoolsToTheEnd(Pools):
    """The same; then time passes, and every pool is settled, once, whatever happened."""

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.bench.clock.forward(9 * DAY)
                self.world.refusing = False
                self.mint("owner", "router", "1", [])  # which goes back, with all that is owed
                assert self.bench.rows("SELECT * FROM refunds WHERE state <> 'paid'") == []
                for row in self.bench.rows("SELECT id FROM pools"):
                    self.world.job("owner", "pool", "Allocate-Rewards", {"dataset": row["id"]}, via="clock")
                schedule.tick(self.bench.exchange, self.bench.clock.now)
                self.world.check()
                assert self.bench.rows("SELECT id FROM pools WHERE state = 'open'") == []
                assert self.bench.balance(self.bench.id("pool")) == 0
        finally:
            super().teardown()


TestPools = PoolsToTheEnd.TestCase
TestPools.settings = settings(max_examples=MORE, stateful_step_count=50, deadline=None, derandomize=MORE == 45,
                              suppress_health_check=list(HealthCheck))
