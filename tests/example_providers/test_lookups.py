"""Look-ups, cancels and lists by the contracts of examples/providers."""

import json

import pytest
from example_providers.fix_examples import (
    ACTION,
    KEY,
    ORDER,
    PAY,
    PAYPAL_REFUND,
    PM,
    RECORDED,
    SQUARE,
    SQUARE_REFUND,
    bare,
    question,
    recorded,
    response,
)

from idem.outbox.domain.contract import FrozenRequest, Response
from idem.outbox.domain.provider import Provider
from idem.outcomes import Absent, CouldNotAsk, LookupOutcome, Pending, Refused, Succeeded

SINCE = "2026-11-30T00%3A48%3A20Z"
"""The first send, less the slack, as it stands in an address."""

ASKED = {
    ("paypal_orders", ORDER): [f"/v2/checkout/orders/{ORDER}"],
    ("paypal_orders", None): [],
    ("paypal_payments", PAYPAL_REFUND): [f"/v2/payments/refunds/{PAYPAL_REFUND}"],
    ("square", None): [f"/v2/payments?begin_time={SINCE}&sort_order=DESC&limit=100"],
    ("square_refunds", None): [f"/v2/refunds?begin_time={SINCE}&sort_order=DESC&limit=100"],
    ("checkout", None): [f"/payments?reference={KEY}&limit=10"],
    ("checkout", PAY): [f"/payments/{PAY}", f"/payments?reference={KEY}&limit=10"],
    ("checkout_refunds", None): [f"/payments/{PAY}/actions"],
    ("gocardless", None): [f"/payments?created_at%5Bgte%5D={SINCE}&limit=500"],
    ("gocardless", PM): [f"/payments/{PM}", f"/payments?created_at%5Bgte%5D={SINCE}&limit=500"],
    ("adyen", "NC6HT9CRT65ZGN82"): [],
    ("adyen", None): [],
}
PATHS = {"checkout_refunds": f"/payments/{PAY}/refunds"}

FOUND: list[tuple[str, str | None, str, LookupOutcome]] = [
    ("paypal_orders", ORDER, "completed", Succeeded(ORDER, "COMPLETED")),
    ("paypal_orders", ORDER, "approved", Succeeded(ORDER, "APPROVED", interim=True)),
    ("paypal_orders", ORDER, "voided", Refused(ORDER, "VOIDED")),
    ("paypal_orders", ORDER, "absent", Absent()),
    ("paypal_payments", PAYPAL_REFUND, "refund_completed", Succeeded(PAYPAL_REFUND, "COMPLETED")),
    ("paypal_payments", PAYPAL_REFUND, "refund_cancelled", Refused(PAYPAL_REFUND, "CANCELLED")),
    ("square", None, "found", Succeeded(SQUARE, "COMPLETED")),
    ("square", None, "canceled", Refused(SQUARE, "CANCELED")),
    ("square", None, "others", Absent()),
    ("square", None, "nothing", Absent()),
    # A 200 that holds errors has no list either, and says nothing.
    ("square", None, "error", CouldNotAsk()),
    ("square", SQUARE, "by_id", Succeeded(SQUARE, "COMPLETED")),
    ("square_refunds", None, "refund_found", Succeeded(SQUARE_REFUND, "COMPLETED")),
    ("square_refunds", None, "refund_nothing", Absent()),
    ("checkout", None, "found", Succeeded(PAY, "Captured")),
    ("checkout", None, "declined", Refused(PAY, "Declined")),
    ("checkout", None, "refunded", Succeeded(PAY, "Refunded")),
    ("checkout", None, "nothing", Absent()),
    ("checkout", None, "somebody_else", CouldNotAsk()),
    ("checkout", None, "twice", Succeeded(PAY, "Captured")),
    ("checkout", PAY, "by_id", Succeeded(PAY, "Captured")),
    ("checkout", PAY, "absent_by_id", Absent()),
    ("checkout_refunds", None, "refund_found", Succeeded(ACTION, "Approved")),
    ("checkout_refunds", None, "refund_declined", Refused(ACTION, "Declined - Do Not Honour")),
    ("checkout_refunds", None, "refund_nothing", Absent()),
    ("gocardless", PM, "submitted", Pending(PM, "submitted")),
    ("gocardless", PM, "paid_out", Succeeded(PM, "paid_out")),
    ("gocardless", PM, "failed", Refused(PM, "failed")),
    ("gocardless", PM, "charged_back", Succeeded(PM, "charged_back")),
    ("gocardless", PM, "another", CouldNotAsk()),
    ("gocardless", PM, "absent", Absent()),
    ("gocardless", None, "found", Pending(PM, "submitted")),
    ("gocardless", None, "nothing", Absent()),
]


@pytest.mark.parametrize(("provider", "reference"), ASKED)
def test_what_is_asked(providers: dict[str, Provider], provider: str, reference: str | None) -> None:
    made = providers[provider].questions(question(reference, PATHS.get(provider, "/payments")))
    assert [each.path for each in made] == ASKED[provider, reference]
    assert all(each.method == "GET" and KEY not in str(each.headers) for each in made)


@pytest.mark.parametrize(("provider", "reference", "shape", "wanted"), FOUND)
def test_a_look(
    providers: dict[str, Provider], provider: str, reference: str | None, shape: str, wanted: LookupOutcome
) -> None:
    about = question(reference, PATHS.get(provider, "/payments"))
    asked = providers[provider].questions(about)[0]
    look, seen = providers[provider].read_lookup(response(provider, "lookups", shape), about, asked)
    assert bare(look) == wanted, seen
    assert seen.copies == (
        2 if shape == "twice" else 1 if isinstance(wanted, Succeeded | Refused | Pending) else 0
    ) or (shape == "another")


def test_every_recorded_look_is_read() -> None:
    there = {
        (path.parent.name, shape) for path in RECORDED.glob("*/lookups.json") for shape in json.loads(path.read_text())
    }
    paged = {("square", "others_and_more"), ("gocardless", "more")}
    assert there - paged == {(provider.partition("_")[0], shape) for provider, _, shape, _ in FOUND}


@pytest.mark.parametrize("provider", [name for name, reference in ASKED if reference is None and ASKED[name, None]])
def test_a_proxys_page_is_no_absence(providers: dict[str, Provider], provider: str) -> None:
    about = question(None, PATHS.get(provider, "/payments"))
    for status in (200, 404, 401, 502):
        page = Response(status, {"content-type": "text/html"}, b"<html></html>")
        assert providers[provider].read_lookup(page, about)[0] == CouldNotAsk()


@pytest.mark.parametrize(
    ("provider", "shape", "cursor"),
    [("square", "others_and_more", "cursor=2TTnuq0yRYDdBRSFF2XuFkgO1"), ("gocardless", "more", "after=PM9")],
)
def test_a_list_goes_on(providers: dict[str, Provider], provider: str, shape: str, cursor: str) -> None:
    about = question()
    (asked,) = providers[provider].questions(about)
    following = providers[provider].next_page(response(provider, "lookups", shape), about, asked)
    assert following is not None and cursor in following.path


def test_square_cancels_by_key(providers: dict[str, Provider]) -> None:
    square = providers["square"]
    asked = square.cancel(question())
    assert asked is not None and asked.path == "/v2/payments/cancel"
    assert json.loads(asked.body) == {"idempotency_key": KEY}
    # Version and credentials go with it, as with everything else.
    assert asked.headers["square-version"] == "2026-09-16"
    said = {shape: square.read_cancel(response("square", "cancels", shape), question())[0] for shape in CANCELS}
    assert said == CANCELS
    assert square.read_cancel(Response(200, {}, b"<html></html>"), question())[0] == CouldNotAsk()
    assert square.contract.cancel is not None and not square.contract.cancel.blocks_late_requests


CANCELS: dict[str, LookupOutcome] = {"done": Absent(), "not_cancelable": CouldNotAsk(), "internal": CouldNotAsk()}


@pytest.mark.parametrize(("provider", "page"), [("square", "found"), ("gocardless", "found")])
def test_the_ledgers_list(providers: dict[str, Provider], provider: str, page: str) -> None:
    known = providers[provider]
    asked = known.listing(1796000000.0, 1796086400.0)
    assert isinstance(asked, FrozenRequest)
    assert asked.path.count("2026-11-30T00%3A53%3A20Z") == 1 and asked.path.count("2026-12-01T00%3A53%3A21Z") == 1
    shown = known.read_listing(response(provider, "lookups", page), asked)
    assert shown is not None and not shown.broken and shown.following is None
    ours = [item for item in shown.items if item.key == KEY]
    assert len(shown.items) == 2 and len(ours) == 1 and ours[0].ours is True
    assert ours[0].created == 1795856400.0 and ours[0].said is not None
    # Without items there is no list in Square's answer.
    if provider == "square":
        nothing = known.read_listing(response("square", "lookups", "nothing"), asked)
        assert nothing is not None and nothing.items == ()
        assert recorded("square", "lookups", "nothing")["body"] == {}
