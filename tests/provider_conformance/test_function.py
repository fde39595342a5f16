"""A provider that a function sends to, and one that ignores its deadline (hazard 55)."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from idem.outbox.domain.contract import Account, Contract, KeyRule, LookupRule, ProviderRequest
from idem.outbox.providers.send import SendProvider
from idem.outcomes import Absent, LookupOutcome, Outcome, Refused, Succeeded
from idem.sending import Question, Sending, SendRequest
from idem.testing.providers import Broken, Fault, NotSupported, ProviderConformance, World
from idem.testing.providers.calls import Calls

LETTER = ProviderRequest("SEND", "/letters", {"to": "somebody@example.com"})


@dataclass
class Press:
    """Prints letters into memory; `rude`: it does not care when it has to be done."""

    rude: float = 0.0
    printed: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    fault: str | None = None

    def send(self, request: SendRequest, call: Sending) -> Outcome:
        fault, self.fault = self.fault, None
        call.start()
        if fault == Fault.DROP_BEFORE_ACTING:
            raise ConnectionError
        if fault == Fault.DECLINE:
            self.refused.add(request.key)
        if request.key in self.refused:
            return Refused(None)
        self.printed.setdefault(request.key, f"letter {len(self.printed)}")
        if fault == Fault.ACT_THEN_DROP:
            raise ConnectionError
        if fault == Fault.STALL:
            time.sleep(self.rude or call.deadline)
            raise TimeoutError
        return Succeeded(self.printed[request.key])

    def look(self, question: Question) -> LookupOutcome:
        known = self.printed.get(question.provider_key)
        return Absent() if known is None else Succeeded(known)


class PressWorld(World):
    patience = 0.3

    def __init__(self, press: Press) -> None:
        contract = Contract(
            "press", KeyRule("argument", None, "stored", 86400, 1020), LookupRule(by_key=True), deadline=2.0
        )
        super().__init__(
            SendProvider(contract, {"main": Account("main", "press://")}, press.send, press.look), "main", LETTER
        )
        self.press = press

    def effects(self) -> int:
        return len(self.press.printed)

    def next(self, fault: str) -> None:
        if fault not in (Fault.DROP_BEFORE_ACTING, Fault.ACT_THEN_DROP, Fault.STALL, Fault.DECLINE):
            raise NotSupported(f'World.next has no "{fault}"')
        self.press.fault = fault

    def later(self, seconds: float) -> None:
        pass


class TestPress(ProviderConformance):
    @pytest.fixture
    def world(self) -> Iterator[World]:
        yield PressWorld(Press())


def test_a_function_that_ignores_its_deadline_is_caught() -> None:
    before = threading.active_count()
    with pytest.raises(Broken, match=r"^deadline: .* was over after"):
        ProviderConformance().test_a_stalled_call_ends_at_its_deadline(Calls(PressWorld(Press(rude=6.5))))
    assert threading.active_count() < before + 20
