"""A request that was frozen under another contract does not carry the key as the one of now says.

The provider has learned no key from it. So it is never sent again under that key, nothing that is not found under the
key proves anything about it, and no cancel of the key concerns it: a person decides, who sees it at once.
"""

from dataclasses import replace
from uuid import UUID

import pytest
from fix_spine import BY_ID, KEYED, Spine, lookup
from producers.application import Application, synced
from settling import shop
from settling.shop import much_later

from idem.errors import OperatorRefused
from idem.outbox.domain.contract import CancelRule, Contract, FrozenRequest, KeyRule, LookupRule
from idem.outbox.providers.request_parts import carried, named

KEY = "0190aaaa-0000-7000-8000-000000000001"
UNKEYED = replace(KEYED, key=KeyRule(), lookup=LookupRule(by_id=True), on_unsettleable="operator")
MISNAMED = replace(KEYED, key=replace(KEYED.key, name="x-request-id"))


def under(spine: Spine, contract: Contract) -> None:
    shop.use(spine, contract, lookups=False)
    ways = (BY_ID, lookup("key")) if contract.lookup.possible else (BY_ID,)
    provider = spine.provider("keyed")
    spine.change("keyed", contract=replace(provider.contract, lookup=contract.lookup), lookups=ways)


async def lost(spine: Spine, contract: Contract, *, by_sql: bool = False) -> UUID:
    """A payment that the bank has made under this contract, and whose answer did not arrive."""
    if by_sql:
        # Accepted while the contract still has its key, and rendered when it has none.
        synced(spine.url, spine.catalogue)
        intent = Application(spine.url).accepted()
    under(spine, contract)
    if not by_sql:
        intent = spine.accepted()
    await spine.work(faults=["act_then_drop"])
    assert (await spine.row(intent))["status"] == "unknown"
    return intent


@pytest.mark.parametrize("by_sql", [False, True], ids=["by the library", "by SQL"])
@pytest.mark.parametrize("before", [UNKEYED, MISNAMED], ids=["no key", "another header"])
async def test_it_is_neither_sent_again_nor_believed_absent(spine: Spine, before: Contract, by_sql: bool) -> None:
    intent = await lost(spine, before, by_sql=by_sql)
    under(spine, KEYED)
    await spine.reconcile(after=10)
    assert await spine.letters(intent) == ["not_settleable"], "nothing can settle it, and a person hears it at once"
    await much_later(spine)
    assert len(shop.sends(spine)) == 1
    assert (await spine.row(intent))["status"] == "unknown"


async def test_a_cancel_of_the_key_proves_nothing(spine: Spine) -> None:
    intent = await lost(spine, UNKEYED)
    key = replace(KEYED.key, replay="success_only")
    shop.use(spine, replace(KEYED, key=key, cancel=CancelRule(blocks_late_requests=True)), lookups=False)
    await much_later(spine)
    assert (shop.cancels(spine), len(shop.sends(spine))) == (0, 1)
    assert (await spine.row(intent))["status"] == "unknown"


async def test_a_redrive_is_refused_and_says_why(spine: Spine) -> None:
    intent = await lost(spine, MISNAMED)
    under(spine, KEYED)
    await spine.advance(300)
    with pytest.raises(OperatorRefused, match="does not carry the key where the provider's contract now expects it"):
        await spine.act("redrive", intent)


async def test_what_lost_commits_may_have_sent_is_not_sent_again(spine: Spine) -> None:
    under(spine, MISNAMED)
    intent = spine.accepted()
    await spine.all("UPDATE idem.outbox SET doubted_since = statement_timestamp() RETURNING id")
    under(spine, KEYED)
    await spine.work()
    await spine.work(after=10)
    assert shop.sends(spine) == []
    under(spine, MISNAMED)
    await spine.work(after=60)
    assert len(shop.sends(spine)) == 1, "under the contract that it was made for it goes on"
    assert (await spine.key(intent))["state"] == "completed"


async def test_a_look_by_reference_asks_for_what_the_request_names(spine: Spine) -> None:
    """The operation begins to send our reference: what was sent before has none, and is not found by it."""
    intent = await lost(spine, replace(UNKEYED, key=KeyRule()))
    contract = replace(UNKEYED, lookup=LookupRule(by_reference=True, by_id=True, horizon=10, agree=2))
    spine.change("keyed", contract=contract, lookups=(lookup("reference"),))
    await much_later(spine)
    await spine.expect(intent, status="unknown", letters=["not_settleable"])


def request(body: bytes = b"", media: str = "application/json", **headers: str) -> FrozenRequest:
    return FrozenRequest("POST", "/payments", {"content-type": media, **headers}, body)


FORM = "application/x-www-form-urlencoded"


HEADER, MEMBER = KeyRule("header", "Idempotency-Key", "stored"), KeyRule("body", "ref", "stored")


@pytest.mark.parametrize(
    ("rule", "sent", "expected"),
    [
        (HEADER, request(**{"idempotency-key": KEY}), True),
        (HEADER, request(**{"x-key": KEY}), False),
        (HEADER, request(**{"idempotency-key": "other"}), False),
        (MEMBER, request(b'{"ref":"%s"}' % KEY.encode()), True),
        (MEMBER, request(b'{"in":{"ref":"%s"}}' % KEY.encode()), False),
        (MEMBER, request(b'{"other":"%s"}' % KEY.encode()), False),
        (MEMBER, request(b'["%s"]' % KEY.encode()), False),
        (MEMBER, request(b""), False),
        (MEMBER, request(b"\xff{", "text/xml"), False),
        (MEMBER, request(b"a=1&ref=%s" % KEY.encode(), FORM), True),
        (MEMBER, request(b"a=1&xref=%s" % KEY.encode(), FORM), False),
        (KeyRule("argument", None, "stored"), request(), True),
        (KeyRule(), request(**{"idempotency-key": KEY}), False),
    ],
)
def test_where_a_request_carries_the_key(rule: KeyRule, sent: FrozenRequest, expected: bool) -> None:
    assert carried(sent, rule, KEY) is expected


@pytest.mark.parametrize(
    ("rule", "headers", "body"),
    [
        (HEADER, {"IDEMPOTENCY-Key": KEY}, b"{}"),
        (MEMBER, {"Content-Type": "Application/JSON; charset=utf-8"}, b'{"ref": "%s"}'),
        (MEMBER, {}, b'{"ref": "%s"}'),
        (MEMBER, {"Content-Type": "application/x-www-form-urlencoded;charset=utf-8"}, b"a=1&ref=%s"),
    ],
)
def test_a_request_as_the_system_before_has_sent_it(rule: KeyRule, headers: dict[str, str], body: bytes) -> None:
    """Imported requests have names and media types as others write them."""
    sent = FrozenRequest("POST", "/payments", headers, body.replace(b"%s", KEY.encode()))
    assert carried(sent, rule, KEY)
    assert not carried(sent, rule, "0190aaaa-0000-7000-8000-000000000002")


def test_where_a_request_names_the_key() -> None:
    rule = KeyRule("body", "ref", "stored")
    assert named(request(b'{"a":"x %s y"}' % KEY.encode()), rule, KEY)
    assert named(FrozenRequest("POST", f"/payments/{KEY}", {}, b""), rule, KEY)
    assert not named(request(b'{"a":1}'), rule, KEY)
    assert not named(request(**{"x-key": KEY}), rule, KEY), "a header is given back by no provider"
    assert not named(request(b'{"ref":"%s"}' % KEY.encode()), rule, KEY), "its carrier is no reference"
    assert named(request(b'{"ref":"%s","a":"%s"}' % (KEY.encode(), KEY.encode())), rule, KEY)
    assert not named(request(b"ref=%s" % KEY.encode(), FORM), rule, KEY)
