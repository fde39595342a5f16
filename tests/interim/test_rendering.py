"""An interim answer is the operation's own code: whatever it does, the row settles and the client hears something."""

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from fix_spine import operation
from interim.shop import Shop, body
from structlog.testing import capture_logs

from idem.outbox.domain.completion import completes_when, is_open, meaning
from idem.outbox.domain.contract import Contract
from idem.outbox.domain.outcomes import Proof
from idem.outbox.settle.answer_rendering import Renderer
from idem.outcomes import Pending, Refused, Succeeded

WORKING = Pending("pay_1", "requires_action", {"next": 1})
DEFAULT = {"reference": "pay_1", "status": "requires_action"}


def broken(_: Pending) -> Any:
    raise RuntimeError("no template")


def leaves(_: Pending) -> Any:
    raise SystemExit(3)


def hangs(_: Pending) -> Any:
    time.sleep(5)


async def told(interim: Callable[[Pending], Any] | None) -> Any:
    made = await Renderer().render(operation("pay.x", "keyed", interim=interim), WORKING, uuid4())
    assert (made.answer, made.letter) == (None, None)
    return made.interim


@pytest.mark.parametrize("value", [{"a": [1, None, "ü"]}, ["x"], "https://x.example", 7, {"id": 2**63}, {}])
async def test_any_json_is_an_interim_answer(value: Any) -> None:
    assert await told(lambda _: value) == value


@pytest.mark.parametrize("silent", [None, lambda _: None])
async def test_an_operation_that_says_nothing_has_the_default(silent: Callable[[Pending], Any] | None) -> None:
    with capture_logs() as lines:
        assert await told(silent) == DEFAULT
    assert lines == []


@pytest.mark.parametrize(
    "interim",
    [
        broken,
        leaves,
        hangs,
        lambda _: {"at": float("nan")},
        lambda _: {"url": "https://x.example/" + "a" * 5000},
        lambda _: {"half": "\ud800"},
        lambda _: {"when": object()},
    ],
)
async def test_what_fails_gives_the_default_and_a_line_in_the_log(interim: Callable[[Pending], Any]) -> None:
    with capture_logs() as lines:
        assert await told(interim) == DEFAULT
    (line,) = [line for line in lines if line["event"] == "broken"]
    assert "the interim answer of pay.x" in line["doing"]


async def test_a_failure_buries_nothing(shop: Shop) -> None:
    shop.spine.operate("pay.final", interim=broken)
    intent = await shop.charge("final")
    (payment,) = shop.spine.bank.log.payments()
    assert body(await shop.pay("final"))["interim"] == {"reference": payment.id, "status": "requires_action"}
    assert await shop.spine.letters(intent) == []


@pytest.mark.parametrize(
    ("seen", "final", "exists"),
    [
        (Succeeded("a", "s", {"x": 1}), Succeeded("a", "s", {"x": 1}), Succeeded("a", "s", {"x": 1})),
        (Refused("a", "s"), Refused("a", "s"), Refused("a", "s")),
        (Pending("a", "s", {"x": 1}), Pending("a", "s", {"x": 1}), Succeeded("a", "s", {"x": 1}, interim=True)),
        (
            Succeeded("a", "s", {"x": 1}, interim=True),
            Pending("a", "s", {"x": 1}),
            Succeeded("a", "s", {"x": 1}, interim=True),
        ),
    ],
)
def test_what_a_proof_means(seen: Proof, final: Proof, exists: Proof) -> None:
    awaits, enough = (operation("pay.x", "keyed", completes_when=when) for when in ("final", "exists"))
    assert (meaning(awaits, seen), meaning(enough, seen)) == (final, exists)
    # Without an answer nothing that is open completes a key.
    assert meaning(enough, seen, answered=False) == (final if is_open(seen) else seen)


def test_the_default_is_the_contracts() -> None:
    assert completes_when(None, Contract("p")) == "final"
    assert completes_when(None, Contract("p", answers=True)) == "exists"
    assert completes_when("final", Contract("p", answers=True)) == "final"
    assert completes_when("exists", Contract("p")) == "exists"
