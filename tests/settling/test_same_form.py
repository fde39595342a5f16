"""A look-up by reference finds what was sent with the key where the look-up expects it (docs/decisions/0040).

An operation that misspells the member is answered like any other, but what it has sent is found by no look-up: neither
before it is corrected, nor after. So an older payment that was sent like the row must be found as the row is asked for.
"""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from fix_spine import Spine
from settling import shop
from settling.shop import much_later, stands

from idem.outbox.domain.contract import FrozenRequest, ProviderRequest
from idem.outbox.providers.key_locations import of_path, places
from idem.outbox.providers.template import KEY_TEXT

KEY = "0190aaaa-0000-7000-8000-000000000001"


def naming(spine: Spine, member: str, **more: Any) -> None:
    """The operation names the key in this member of its body."""

    def request(params: Any) -> ProviderRequest:
        body = {"amount": params["amount"], "currency": "eur", member: KEY_TEXT, **more}
        return ProviderRequest("POST", "/payments", json=body)

    shop.use(spine, kind="keyless", operation={"request": request})


async def lost(spine: Spine, fault: str = "act_then_drop") -> UUID:
    return await shop.lost(spine, fault=fault, operation="pay.keyless")


async def paid(spine: Spine, key: str) -> None:
    await shop.paid(spine, key, "pay.keyless")


@pytest.mark.parametrize("older", [False, True], ids=["the first of its form", "after one like it"])
@pytest.mark.parametrize("newer", ["accepted", "settled"])
async def test_a_member_that_was_misspelt_and_is_corrected(spine: Spine, older: bool, newer: str) -> None:
    naming(spine, "refrence")
    if older:
        await paid(spine, "older")
    intent = await lost(spine)
    naming(spine, "reference")
    if newer == "settled":
        await paid(spine, "newer")
    else:
        spine.accepted("newer", operation="pay.keyless")
    await much_later(spine)
    assert spine.effects() == 2 + older, "the lost one was made once"
    await stands(spine, intent, "is not found" if older else "the places of the request")


async def test_a_member_that_is_misspelt_for_good(spine: Spine) -> None:
    """Nothing changed: what was paid before is found by its id, and not as the row is asked for."""
    naming(spine, "refrence")
    await paid(spine, "older")
    intent = await lost(spine)
    await much_later(spine)
    assert spine.effects() == 2
    await stands(spine, intent, "an older payment that was sent like it is not found")


@pytest.mark.parametrize("older", [False, True], ids=["the first payment ever", "after another one"])
async def test_what_names_no_key_changes_nothing(spine: Spine, older: bool) -> None:
    naming(spine, "reference")
    if older:
        await paid(spine, "older")
    intent = await lost(spine, "drop_before_acting")
    naming(spine, "reference", description="one member more")
    await paid(spine, "newer")
    await much_later(spine)
    assert (await spine.key(intent))["state"] == "completed"
    assert (spine.effects(), await spine.letters(intent)) == (2 + older, [])


async def test_a_form_that_is_found_settles_also_after_a_change(spine: Spine) -> None:
    """The key gets another place, and the old one was right: an older payment is found, and the absence is believed."""
    naming(spine, "reference")
    await paid(spine, "older")
    intent = await lost(spine, "drop_before_acting")
    naming(spine, "reference", note=KEY_TEXT)
    await paid(spine, "newer")
    await much_later(spine)
    assert (await spine.key(intent))["state"] == "completed" and spine.effects() == 3


def request(
    body: bytes = b"", path: str = "/payments", media: str = "application/json", **headers: str
) -> FrozenRequest:
    return FrozenRequest("POST", path, {"content-type": media, **headers}, body)


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (request(), set()),
        (request(**{"Idempotency-Key": KEY}), {"header idempotency-key"}),
        (request(b'{"reference":"%s"}' % KEY.encode()), {"body /reference"}),
        (request(b'{"a":{"b":["x","%s"]}}' % KEY.encode()), {"body /a/b/*"}),
        (request(b'{"text":"order %s, thanks"}' % KEY.encode()), {"body /text"}),
        (request(b'{"%s":1}' % KEY.encode()), {"body  (a name)"}),
        (request(b"a=1&metadata%%5Bref%%5D=%s" % KEY.encode(), media=FORM), {"form metadata[ref]"}),
        (request(b"<ref>%s</ref>" % KEY.encode(), media="text/xml"), {"body"}),
        (request(path=f"/customers/17/payments/{KEY}"), {"path 4"}),
        (request(path=f"/payments?ref={KEY}&x=1"), {"query ref"}),
    ],
)
def test_the_places_of_a_key(sent: FrozenRequest, expected: set[str]) -> None:
    assert places(sent, KEY) - of_path(places(sent, KEY)) == {"method POST", *expected}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("/payments", "/payments?a=1", True),
        ("/customers/1/payments", "/customers/north/payments", True),
        ("/payments", "/v2/payments", False),
        ("/v1/payments", "/v2/payments", False),
        ("/v1.1/payments", "/v1.2/payments", False),
        ("/payments", "/payments/", False),
        ("/payments/version1", "/payments/vintage", True),
    ],
)
def test_the_shape_of_a_path(one: str, other: str, same: bool) -> None:
    """A call to another path may be in another list. What the params fill in is no difference."""
    assert (of_path(places(request(path=one), KEY)) == of_path(places(request(path=other), KEY))) is same


def test_what_differs_from_call_to_call_is_no_place() -> None:
    one = request(b'{"amount":1,"items":[1],"reference":"%s"}' % KEY.encode(), "/customers/1/payments")
    other = request(b'{"reference":"%s","amount":2,"items":[]}' % KEY.encode(), "/customers/2/payments")
    assert places(one, KEY) == places(replace(other, headers=one.headers), KEY)
