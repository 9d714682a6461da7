"""Which assignment of a stand-in meets which faults: drawn from the plan's seed, whatever order the calls come in.

Pure."""

from __future__ import annotations

import random
from collections import Counter

from automate.validation.standin.plan import (
    DATA_FAULTS,
    LIST_FAULTS,
    REQUEST_FAULTS,
    UPDATE_FAULTS,
    Content,
    Fault,
    Plan,
    Trouble,
)

PLACES = {"request": REQUEST_FAULTS, "update": UPDATE_FAULTS, "data": DATA_FAULTS}
_Slot = tuple[int, int]


class Schedule:
    """The faults of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._odd = [one for one in plan.contents if one is not Content.PLAIN]
        self._contents, self._dealt = self._deal() if plan.deal else ({}, {})

    def trouble(self, task_id: int, number: int, attempt: int = 0) -> Trouble:
        """What the assignment `number` (from 0) of a task meets. Later attempts keep the content and go well."""
        dice = random.Random(f"{self.plan.seed}/{task_id}/{number}")
        slot = task_id, number
        content = dice.choice(self._odd) if self._odd and dice.random() < self.plan.rate / 2 else Content.PLAIN
        content = self._contents.get(slot, Content.PLAIN if slot in self._dealt else content)
        if attempt:
            return Trouble(content)
        drawn = {place: self._draw(dice, faults) for place, faults in PLACES.items()}
        for place, fault in self._dealt.get(slot, ()):
            drawn[place] = (fault, *drawn[place])
        return Trouble(content, drawn["request"], drawn["update"], drawn["data"])

    def list_fault(self, call: int) -> Fault | None:
        """What the list's call number `call` (from 0) meets; never two in a row."""
        if call % 2:
            return None
        if self.plan.deal and call // 2 < len(LIST_FAULTS):
            return LIST_FAULTS[call // 2]
        dice = random.Random(f"{self.plan.seed}/list/{call}")
        return dice.choice(LIST_FAULTS) if dice.random() < self.plan.rate else None

    def covered(self) -> Counter[str]:
        """How often each fault (`place:fault`) and content (`content:name`) is scheduled."""
        found: Counter[str] = Counter()
        for task_id, number in self._slots():
            trouble = self.trouble(task_id, number)
            found[f"content:{trouble.content}"] += 1
            found.update(f"{place}:{fault}" for place in PLACES for fault in getattr(trouble, place))
        return found

    def expected(self) -> Counter[str]:
        """How many first assignments must end in which way; see `Trouble.expected`."""
        return Counter(self.trouble(*slot).expected for slot in self._slots())

    def _slots(self) -> list[_Slot]:
        return [(task.id, number) for task in self.plan.tasks for number in range(task.submissions)]

    def _draw(self, dice: random.Random, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
        drawn: list[Fault] = []
        while len(drawn) < self.plan.most_faults and dice.random() < self.plan.rate:
            drawn.append(dice.choice(faults))
        return tuple(drawn)

    def _deal(self) -> tuple[dict[_Slot, Content], dict[_Slot, list[tuple[str, Fault]]]]:
        """A slot for each odd content; each fault goes to one of the others, which is then of a good content."""
        slots = self._slots()
        random.Random(f"{self.plan.seed}/deal").shuffle(slots)
        contents: dict[_Slot, Content] = dict(zip(slots[:len(slots) // 2], self._odd, strict=False))
        others = slots[len(contents):]
        dealt: dict[_Slot, list[tuple[str, Fault]]] = {}
        cards = [(place, fault) for place, faults in PLACES.items() for fault in dict.fromkeys(faults)]
        for number, card in enumerate(cards if others else []):
            dealt.setdefault(others[number % len(others)], []).append(card)
        return contents, dealt
