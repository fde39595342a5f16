"""Two of the contracts from end to end: the line is cut after the provider has acted, and there is one effect.

The bank plays the providers, with their semantics of a replay, their members and their ways to ask.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from example_providers.fix_examples import ENV
from example_providers.provided import Provided, provided

from idem.outbox.database.pool import Database
from idem.outbox.values import json_pointer
from idem.testing.bank import Bank, BankAccount, BankLookup, BankSettings, BankShape, StatusWords

HOUR, DAY = 3600.0, 86400.0
STATUS = json_pointer.parse("/status")


def statuses(**words: str) -> dict[str, StatusWords]:
    return {own: StatusWords(201, ((STATUS, word),)) for own, word in words.items()}


PAYPAL = BankAccount(
    name="paypal",
    token="paypal-token",
    replay="current",
    retention=6 * HOUR,
    key_header="paypal-request-id",
    key_field=None,
    shape=BankShape(
        statuses(succeeded="COMPLETED", processing="APPROVED", declined="VOIDED"),
        {
            "code": json_pointer.parse("/debug_id"),
            "message": json_pointer.parse("/message"),
            "type": json_pointer.parse("/name"),
        },
        (BankLookup(r"/v2/checkout/orders/([^/?]+)"),),
    ),
)
CHECKOUT = BankAccount(
    name="checkout",
    token=ENV["CHECKOUT_SECRET_KEY"],
    replay="success_only",
    retention=DAY,
    key_header="cko-idempotency-key",
    key_field=None,
    shape=BankShape(
        statuses(succeeded="Authorized", processing="Pending", declined="Declined"),
        {"code": json_pointer.parse("/error_type")},
        (
            BankLookup(r"/payments/(pay_[^/?]+)"),
            BankLookup(
                r"/payments\?reference=([^&]+)&limit=10",
                ("data", "0"),
                ("reference",),
                StatusWords(200, ((("data",), []),)),
            ),
        ),
    ),
)
ORDER = {"amount": "12.50", "currency": "EUR", "order": "A-7", "vault": "v"}
PAYMENT = {"amount": 6540, "currency": "EUR", "instrument": "src_1", "order": "A-7"}

Make = Callable[..., Awaitable["Provided"]]


@pytest.fixture
async def make(database: Database, db_url: str, tmp_path: Path) -> AsyncIterator[Make]:
    async with AsyncExitStack() as stack:

        async def made(name: str, origin: str, account: BankAccount) -> Provided:
            settings = BankSettings(log=tmp_path / "bank.jsonl", durable=False, require_auth=True, accounts=(account,))
            bank = await stack.enter_async_context(Bank(settings))
            return provided(database, bank, db_url, tmp_path, name, {origin: bank.url})

        yield made


async def paypal(make: Make, *faults: Any) -> tuple[Provided, UUID]:
    """An order that PayPal was sent once, and answered with these faults."""
    shop = await make("paypal", "https://api-m.sandbox.paypal.com", PAYPAL)
    intent = shop.paid("orders.pay", ORDER)
    await shop.work(faults=faults)
    return shop, intent


async def checkout(make: Make, *faults: Any) -> tuple[Provided, UUID]:
    shop = await make("checkout", "https://api.sandbox.checkout.com", CHECKOUT)
    intent = shop.paid("payments.request", PAYMENT)
    await shop.work(faults=faults)
    return shop, intent


@pytest.mark.parametrize("fault", ["act_then_drop", "act_then_reset", "cut_body"])
async def test_paypal_is_sent_again_and_shows_what_is(make: Make, fault: str) -> None:
    shop, intent = await paypal(make, fault)
    assert (await shop.ends(intent))[0] == "unknown"
    await shop.reconcile(after=6)
    assert await shop.ends(intent) == ("completed", 201)
    # The same bytes under the same id, and nobody was asked anything.
    assert (shop.effects(), shop.sends, shop.lookups) == (1, 2, [])


async def test_paypal_had_not_heard_the_first(make: Make) -> None:
    shop, intent = await paypal(make, "drop_before_acting")
    await shop.reconcile(after=6)
    assert await shop.ends(intent) == ("completed", 201)
    assert (shop.effects(), shop.sends) == (1, 2)


async def test_paypal_shows_an_order_that_waits_and_then_its_end(make: Make) -> None:
    shop, intent = await paypal(make, {"fault": "pending"}, "none")
    assert await shop.ends(intent) == ("in_progress", None)
    shop.bank.shift_clock(HOUR)
    await shop.reconcile(after=HOUR)
    assert await shop.ends(intent) == ("completed", 201)
    (look,) = shop.lookups
    assert look.startswith("/v2/checkout/orders/") and shop.sends == 1


async def test_paypal_is_never_sent_again_when_the_six_hours_are_over(make: Make) -> None:
    shop, intent = await paypal(make, "act_then_drop")
    shop.bank.shift_clock(6 * HOUR)
    await shop.advance(6 * HOUR)
    for _ in range(3):
        await shop.reconcile()
        await shop.advance(DAY)
    # Under the id that PayPal has forgotten it would be a second order. Nothing else can tell, so a person is asked.
    assert (shop.effects(), shop.sends) == (1, 1)
    assert (await shop.ends(intent))[0] == "unknown"
    assert len(await shop.letters(intent)) == 1


@pytest.mark.parametrize("fault", ["act_then_drop", "act_then_reset", "act_then_500", "cut_body"])
async def test_checkout_is_asked_and_never_sent_again(make: Make, fault: str) -> None:
    shop, intent = await checkout(make, fault)
    assert (await shop.ends(intent))[0] == "unknown"
    await shop.reconcile(after=20)
    assert await shop.ends(intent) == ("completed", 201)
    assert (shop.effects(), shop.sends) == (1, 1)
    (look,) = shop.lookups
    assert look.startswith("/payments?reference=")


async def test_checkout_had_not_heard_the_first(make: Make) -> None:
    """Proven by look-ups that agree, beyond the horizon and beyond all that may still be under way: only then again."""
    shop, intent = await checkout(make, "drop_before_acting")
    for seconds in (20, 90, 300, 1200):
        assert shop.sends == 1
        await shop.reconcile(after=seconds)
    assert len(shop.lookups) >= 3 and shop.effects() == 0
    assert (await shop.reconcile(after=HOUR)).redriven == 1
    await shop.work()
    assert await shop.ends(intent) == ("completed", 201)
    assert (shop.effects(), shop.sends) == (1, 2)


async def test_checkout_declines(make: Make) -> None:
    shop, intent = await checkout(make, "decline")
    assert await shop.ends(intent) == ("completed", 402)
    assert (shop.sends, shop.lookups) == (1, [])
