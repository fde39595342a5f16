"""A client's traceparent goes to the provider with each call and look about its row, and stands in the row's lines."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from fix_accept import Acceptor
from fix_desk import Desk
from fix_spine import Spine, catalogue
from fix_webhooks import event, hooking
from settling.shop import use
from structlog.testing import capture_logs

from idem.outbox.domain.contract import EventRule
from idem.outbox.operator import confirmation
from idem.outbox.providers import tracing
from idem.testing.proxy import Direction, Proxy, ProxyAction

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SENT = re.compile(rb"(GET|POST) [^\r]*\r\n(?:[^\r]+\r\n)*?traceparent: ([^\r]+)\r\n", re.IGNORECASE)


@asynccontextmanager
async def watched(spine: Spine) -> AsyncIterator[list[bytes]]:
    """The bank behind a proxy; what was sent to it."""
    sent: list[bytes] = []

    def watch(_number: int, direction: Direction, data: bytes) -> ProxyAction:
        if direction == "to_server":
            sent.append(data)
        return "pass"

    async with Proxy(("127.0.0.1", int(spine.bank.url.rpartition(":")[2])), watch) as proxy:
        spine.catalogue = catalogue(f"http://127.0.0.1:{proxy.port}")
        spine.acceptor = Acceptor(spine.catalogue.operations, spine.catalogue.providers)
        yield sent


def traces(sent: list[bytes]) -> list[tuple[bytes, bytes]]:
    return SENT.findall(b"".join(sent))


async def test_the_call_carries_it_and_each_line_names_it(spine: Spine) -> None:
    async with watched(spine) as sent:
        spine.accepted(traceparent=TRACE)
        with capture_logs() as lines:
            await spine.work()
    assert traces(sent) == [(b"POST", TRACE.encode())]
    moved = next(line for line in lines if line["event"] == "transition" and line["kind"] == "report")
    assert moved["traceparent"] == TRACE


async def test_lookups_about_the_row_carry_it_too(spine: Spine) -> None:
    async with watched(spine) as sent:
        intent = spine.accepted(traceparent=TRACE)
        await unknown(spine, intent)
        await spine.reconcile(after=60, hasten=True)
    assert {trace for _, trace in traces(sent)} == {TRACE.encode()}
    assert traces(sent)
    assert len(traces(sent)) == len([data for data in sent if data.startswith((b"GET", b"POST"))])


async def test_asking_about_a_hint_carries_it_too(desk: Desk) -> None:
    """An event that is fetched before it is believed: the look is about the row, like those of its schedule."""
    spine = desk.spine
    async with watched(spine) as sent:
        use(spine, event_rule=EventRule(fetch=True))
        async with hooking(desk) as hooks:
            spine.bank.script(None, ["act_then_drop"])
            intent = spine.accepted(traceparent=TRACE)
            await spine.work()
            reference = spine.bank.log.payments()[-1].id
            assert await hooks.fate(event(await hooks.key(intent), reference=reference)) == "hint"
            sent.clear()
            assert (await spine.reconcile()).events == 1
    assert sent and traces(sent) == [(b"GET", TRACE.encode())] * len(sent)


async def test_an_operators_look_carries_it_too(spine: Spine) -> None:
    async with watched(spine) as sent:
        intent = spine.accepted(traceparent=TRACE)
        await unknown(spine, intent)
        await spine.run(confirmation.ask, spine.catalogue, intent, None)
    assert sent and traces(sent) == [(b"GET", TRACE.encode())] * len(sent)


async def unknown(spine: Spine, intent: UUID) -> None:
    """As if its call had been cut off."""
    await spine.all(
        "UPDATE idem.outbox SET status = 'claimed', attempt = 1, claim_token = gen_random_uuid(), claimed_by = 'w',"
        " claimed_at = now(), claimed_until = now() - interval '1 s', first_sent_at = now() WHERE intent_id = %(i)s"
        " RETURNING id", i=intent,
    )  # fmt: skip
    await spine.sweep()


async def test_a_contract_may_switch_it_off(spine: Spine) -> None:
    async with watched(spine) as sent:
        use(spine, traceparent=False)
        spine.accepted(traceparent=TRACE)
        await spine.work()
    assert sent and traces(sent) == []


@pytest.mark.parametrize(
    ("said", "valid"),
    [
        (TRACE, True), (None, False), ("", False), (TRACE.upper(), False), (TRACE + "-more", False),
        ("ff" + TRACE[2:], False),
        ("00-" + "0" * 32 + TRACE[35:], False), (TRACE[:36] + "0" * 16 + "-01", False), (TRACE + "\r\nx: y", False),
    ],
)  # fmt: skip
def test_only_a_value_of_its_form_is_kept(said: str | None, valid: bool) -> None:
    assert tracing.valid(said) == (said if valid else None)


async def test_what_is_not_of_that_form_is_neither_stored_nor_sent(spine: Spine) -> None:
    async with watched(spine) as sent:
        intent = spine.accepted(traceparent="00-nonsense\r\nx-injected: 1")
        assert (await spine.one("SELECT traceparent FROM idem.outbox WHERE intent_id = %(i)s", i=intent)) == {
            "traceparent": None
        }
        await spine.work()
    assert sent and b"injected" not in b"".join(sent)
