"""Stripe's scheme against its own library: what it signs is taken, what it refuses is refused, its traps too."""

import time

import pytest
from fix_schemes import NOW, OTHER_STRIPE, STRIPE, by_stripe, check, in_hex
from hypothesis import given
from hypothesis import strategies as st
from stripe import Webhook, WebhookSignature

from idem.outbox.providers.schemes.stripe import StripeSignatures

BODY = b'{"id": "evt_1", "object": "event", "type": "payment_intent.succeeded"}'
SCHEME = StripeSignatures()


def says(header: str, body: bytes = BODY, *secrets: str, now: float = NOW) -> str | None:
    return check(SCHEME, body, {"stripe-signature": header}, *(secrets or (STRIPE,)), now=now)


def library(header: str, body: bytes = BODY, tolerance: int | None = None) -> bool:
    """Its own clock goes on while the tests run, so an age is looked at only where a test is about it."""
    try:
        WebhookSignature.verify_header(body, header, STRIPE, tolerance)
    except Exception:
        return False
    return True


def v1(stamp: str, body: bytes = BODY, key: str = STRIPE) -> str:
    return in_hex(key, stamp.encode() + b"." + body)


@given(body=st.text(st.characters(codec="utf-8")))
def test_what_the_library_signs_is_taken(body: str) -> None:
    content = body.encode()
    assert check(SCHEME, content, by_stripe(content), STRIPE) is None


@given(data=st.data())
def test_what_the_library_refuses_is_refused(data: st.DataObject) -> None:
    good = by_stripe(BODY)["stripe-signature"]
    stamp, signature = good.split(",")
    header = data.draw(
        st.one_of(
            st.text(max_size=60),
            st.lists(
                st.sampled_from([stamp, signature, "v0=" + "0" * 64, "v1=" + "0" * 64, "v1", "", "t", " ", "t=1=2",
                                 signature.upper(), f" {signature}", "x=y", "v1=" + signature, f"t= {stamp[2:]}"]),
                max_size=5,
            ).map(",".join),
        )
    )  # fmt: skip
    refused = says(header) is not None
    assert refused or library(header)


def test_stripe_s_own_event_constructor_agrees() -> None:
    header = by_stripe(BODY, at=time.time())["stripe-signature"]
    assert Webhook.construct_event(BODY, header, STRIPE, api_key="sk_test_x").id == "evt_1"
    assert says(header, now=time.time()) is None


def test_the_key_is_the_whole_secret() -> None:
    """Not what is in base64 behind the prefix, as with Standard Webhooks."""
    assert SCHEME.parse_secret(STRIPE) == STRIPE.encode()


@pytest.mark.parametrize("more", ["v0=" + "f" * 64, "v2=abc", "v1=" + "0" * 64, "nothing"])
def test_other_signatures_beside_it_change_nothing(more: str) -> None:
    stamp, signature = by_stripe(BODY)["stripe-signature"].split(",")
    for header in (f"{stamp},{more},{signature}", f"{more},{signature},{stamp}", f"{stamp},{signature},{more}"):
        assert says(header) is None
        assert library(header)
    assert says(f"{stamp},{more}") == "! signature"
    assert says(f"{stamp},v0={signature[3:]}") == "! signature"


@pytest.mark.parametrize("order", [(STRIPE, OTHER_STRIPE), (OTHER_STRIPE, STRIPE)])
def test_ib_103_a_secret_is_changed_without_a_gap(order: tuple[str, str]) -> None:
    stamp = str(int(NOW))
    header = f"t={stamp}," + ",".join(f"v1={v1(stamp, key=key)}" for key in order)
    assert says(header, BODY, STRIPE, OTHER_STRIPE) is None
    assert says(header, BODY, STRIPE) is None
    assert says(header, BODY, OTHER_STRIPE) is None
    assert says(f"t={stamp},v1={v1(stamp, key=OTHER_STRIPE)}", BODY, STRIPE) == "! signature"


def test_trap_a_time_stamp_in_the_future_is_refused() -> None:
    """The library takes one of any future, so that a recorded delivery stays good for as long as its sender likes."""
    header = by_stripe(BODY, at=time.time() + 3600)["stripe-signature"]
    assert library(header, tolerance=300)
    assert says(header, now=time.time()) == "! timestamp"


def test_trap_there_is_always_a_tolerance() -> None:
    """The library's default looks at no age at all."""
    header = by_stripe(BODY, at=NOW - 86400)["stripe-signature"]
    assert library(header)
    assert not library(header, tolerance=300)
    assert says(header) == "! timestamp"


def test_trap_several_time_stamps_are_refused() -> None:
    """The library takes the first; whoever reads the last has another opinion of the age."""
    stamp = str(int(NOW))
    header = f"t={stamp},t=1,v1={v1(stamp)}"
    assert library(header)
    assert says(header) == "! malformed"
    assert says(f"t=1,t={stamp},v1={v1(stamp)}") == "! malformed"
    assert says(f"t={stamp},t={stamp},v1={v1(stamp)}") == "! malformed"


@pytest.mark.parametrize("form", [" {}", "{} ", "+{}", "0{}", "0000{}", "{:_}"])
def test_trap_a_time_stamp_that_python_reads_as_a_number(form: str) -> None:
    """`int` takes them all, and the library signs what it has read."""
    header = f"t={form.format(int(NOW))},v1={v1(str(int(NOW)))}"
    assert library(header)
    assert says(header) == "! timestamp"


@pytest.mark.parametrize("stamp", ["123abc", "1e9", "-1", "nan", "", "0", "1" * 20, "{now}000", "{now}.0"])
def test_ib_108_only_whole_seconds_are_a_time_stamp(stamp: str) -> None:
    """Signed over the very text, so that nothing but its form is wrong."""
    stamp = stamp.format(now=int(NOW))
    assert says(f"t={stamp},v1={v1(stamp)}") == "! timestamp"


@pytest.mark.parametrize("bare", ["t", "v1"])
def test_a_name_without_a_value_is_refused(bare: str) -> None:
    """Stripe's library raises IndexError there."""
    header = f"{by_stripe(BODY)['stripe-signature']},{bare}"
    assert not library(header)
    assert says(header) == "! malformed"


def test_two_headers_are_refused() -> None:
    header = by_stripe(BODY)["stripe-signature"].encode()
    assert check(SCHEME, BODY, [(b"stripe-signature", header)] * 2, STRIPE) == "! malformed"


def test_the_tolerance_is_a_setting() -> None:
    for away, said in ((10, None), (-10, None), (11, "! timestamp"), (-11, "! timestamp")):
        assert check(StripeSignatures(10), BODY, by_stripe(BODY), STRIPE, now=NOW + away) == said
