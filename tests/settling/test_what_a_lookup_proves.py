"""What a look-up may conclude of a call: only what its own request, account and headers let the provider know of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest
from fix_server import Asked, serving
from fix_spine import BY_ID, KEYED, KEYLESS, Spine, lookup
from producers.application import Application, synced
from settling import shop
from settling.shop import keyed

from idem.outbox.domain.contract import KeyRule, LookupRule, Response
from idem.outbox.providers.http import HttpProvider
from idem.outbox.recovery.quarantine import lost
from idem.outcomes import Absent, CouldNotAsk
from idem.sending import Question

KEY = "0190aaaa-0000-7000-8000-000000000001"


async def much_later(spine: Spine) -> None:
    for seconds in (60, 200, 600, 4000, 4000, 90000):
        await spine.sweep()
        await spine.advance(seconds)
        await spine.reconcile(hasten=True)
        await spine.work()


@dataclass
class Merchants:
    """A provider of many merchants: it acts for the one that a header names, and hangs up after every write."""

    url: str = ""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def answer(self, asked: Asked) -> tuple[int, bytes] | None:
        self.asked.append((asked.method, asked.headers))
        return (200, b'{"data":[]}') if asked.method == "GET" else None


@pytest.fixture
async def merchants() -> AsyncIterator[Merchants]:
    found = Merchants()
    async with serving(found.answer) as found.url:
        yield found


async def test_a_look_says_the_headers_of_the_call(spine: Spine, merchants: Merchants) -> None:
    contract = replace(KEYED, key=replace(KEYED.key, replay="success_only"))
    shop.account(spine, origin=merchants.url)
    keyed(spine, contract=contract, headers={"x-merchant": "one"})
    await spine.sent()
    keyed(spine, headers={"x-merchant": "two"})
    await spine.reconcile(after=10)
    methods = [method for method, _ in merchants.asked]
    assert methods[0] == "POST" and "GET" in methods
    assert {headers["x-merchant"] for _, headers in merchants.asked} == {"one"}
    lookups = [headers for method, headers in merchants.asked if method == "GET"]
    assert not any("idempotency-key" in headers or "content-type" in headers for headers in lookups)


@pytest.mark.parametrize("imported_as", ["key", "reference"])
@pytest.mark.parametrize("by", ["key", "reference"])
async def test_what_was_taken_over_without_its_request(spine: Spine, imported_as: str, by: str) -> None:
    """Only what the import has said is known of such a call; the request that is frozen for it was rendered here."""
    wants = replace(KEYED, key=replace(KEYED.key, replay="success_only"), lookup=replace(
        KEYED.lookup, by_key=by == "key", by_reference=by == "reference"))  # fmt: skip
    keyed(spine, contract=wants, lookups=(BY_ID, lookup(by)))
    request = spine.catalogue.operations["pay.keyed"].request
    spine.operate(
        "pay.keyed",
        request=lambda params: replace(request(params), json={**request(params).json, "reference": "{idem.key}"}),
    )
    spine.acceptor.operations = spine.catalogue.operations
    intent = await spine.sent(faults=["drop_before_acting"])
    await spine.all("UPDATE idem.outbox SET imported_as = %(known)s RETURNING id", known=imported_as)
    await much_later(spine)
    believed = (imported_as, by) == ("key", "key")
    assert (await spine.key(intent))["state"] == ("completed" if believed else "unknown")
    assert len(shop.sends(spine)) == (2 if believed else 1)


async def test_what_only_lost_commits_have_rendered_is_not_proven_absent(spine: Spine) -> None:
    """How its request looked is not known: a contract that was corrected since may ask for what it did not name."""
    synced(spine.url, spine.catalogue)
    intent = Application(spine.url).accepted(operation="pay.keyless")
    await spine.run(lost, spine.catalogue, by="ann", reason="restored")
    await much_later(spine)
    assert (shop.sends(spine), (await spine.row(intent))["status"]) == ([], "unknown")
    assert "reconcile_exhausted" in await spine.letters(intent)


@pytest.mark.parametrize(("status", "look"), [(200, Absent), (202, CouldNotAsk), (206, CouldNotAsk)])
def test_only_a_whole_answer_shows_that_there_is_nothing(status: int, look: type) -> None:
    provider = HttpProvider(KEYLESS, {}, lookups=(lookup("reference"),))
    found, _ = provider.read_lookup(Response(status, {}, b'{"data":[]}'), Question(KEY, None, awaiting=False))
    assert isinstance(found, look)


async def test_a_flight_limit_that_was_corrected_counts_for_what_is_unknown(spine: Spine) -> None:
    contract = replace(KEYED, key=KeyRule(), lookup=LookupRule(by_reference=True, horizon=10, agree=2))
    for limit in (60.0, 3000.0):
        keyed(spine, contract=replace(contract, flight_limit=limit), lookups=(lookup("reference"),))
        if limit == 60.0:
            operation = replace(spine.catalogue.operations["pay.keyless"], provider="keyed", account="keyed")
            spine.catalogue = replace(spine.catalogue, operations={"pay.keyed": replace(operation, name="pay.keyed")})
            spine.acceptor.operations = spine.catalogue.operations
            intent = await spine.sent(faults=["drop_before_acting"])
    await spine.reconcile(after=200, hasten=True, times=4)
    assert (await spine.row(intent))["status"] == "unknown", "the request may still act"
    await spine.reconcile(after=3000, hasten=True)
    assert (await spine.row(intent))["status"] != "unknown"
