"""Webhooks: only events that the provider signed are verified, and an event agrees with a look-up."""

import time
from collections.abc import Iterator
from dataclasses import replace

from idem.outbox.domain.outcomes import Pending, Refused, Succeeded, name
from idem.outbox.domain.webhook import Event, Signed, Unverified, Webhook, verify
from idem.testing.providers.calls import Calls, SentCall
from idem.testing.providers.errors import NotSupported, applies, must, world_must
from idem.testing.providers.world import Fault

FLIPS = 200
"""How many bytes of a delivery are changed, one after another."""


class WebhookRules:
    """Rules about `webhook` and `read_events`."""

    def test_a_delivery_of_the_provider_is_verified(self, calls: Calls) -> None:
        """With one of the account's secrets, and without a change."""
        webhook, secrets, deliveries = _delivered(calls)
        for delivery in deliveries:
            try:
                verify(webhook.scheme, delivery, secrets, time.time())
            except Unverified as error:
                must(False, "webhook", f"a delivery of the provider is not verified: {error.reason}, {error}")
            events = calls.provider.read_events(delivery.body)
            must(events is not None, "webhook", "a verified delivery cannot be read")

    def test_a_changed_delivery_is_not_verified(self, calls: Calls) -> None:
        """One byte of its body is changed. If only some members are signed, a change without a different meaning may
        pass."""
        webhook, secrets, deliveries = _delivered(calls)
        whole = _meaning(calls, deliveries[-1].body)
        for changed in _changed(deliveries[-1]):
            if _verifies(webhook, changed, secrets) and _meaning(calls, changed.body) != whole:
                must(False, "webhook", f"a delivery with a changed byte is verified: {changed.body[:200]!r}")

    def test_a_delivery_under_another_secret_is_not_verified(self, calls: Calls) -> None:
        """Nor without any secret."""
        webhook, secrets, deliveries = _delivered(calls)
        others = tuple(bytes([each[0] ^ 1]) + each[1:] for each in secrets)
        must(not _verifies(webhook, deliveries[-1], others), "webhook", "a delivery is verified by another secret")
        must(not _verifies(webhook, deliveries[-1], ()), "webhook", "a delivery is verified without any secret")

    def test_a_bare_body_is_not_verified(self, calls: Calls) -> None:
        """A delivery without the headers of the signature."""
        webhook, secrets, deliveries = _delivered(calls)
        if _verifies(webhook, replace(deliveries[-1], headers=()), secrets):
            raise NotSupported("this scheme signs in the body")

    def test_an_event_names_the_call_and_says_what_its_answer_said(self, calls: Calls) -> None:
        """It has our key, if the contract says that events can settle, and the same object and end as the answer."""
        _hearing(calls)
        sent = calls.made()
        event = _about(calls, sent)
        _agree(event, sent)
        if calls.contract.lookup.by_id and sent.reference is not None:
            for way in calls.by_id(sent, sent.reference):
                lookup, _ = calls.lookup(calls.question(sent, sent.reference), way)
                message = f"the event says {event.reference}, the look-up {getattr(lookup, 'reference', None)}"
                must(getattr(lookup, "reference", None) == event.reference, "webhook.reference", message)

    def test_an_event_settles_a_lost_answer(self, calls: Calls) -> None:
        """The event about such a call is a proof, or has a reference with which idem fetches the object."""
        _hearing(calls)
        applies(calls.contract.events_settle, "webhook.key: events do not name our key")
        sent = calls.lost(Fault.ACT_THEN_DROP)
        event = _about(calls, sent)
        if calls.contract.event_rule.fetch or event.bare:
            must(event.reference is not None, "webhook.reference", "the event has none, so nothing can be fetched")
            return
        message = f"the event about a call whose answer was lost is not a proof: {event.note}"
        must(isinstance(event.said, Succeeded | Pending), "outcome", message)

    def test_an_event_about_a_refusal_is_no_success(self, calls: Calls) -> None:
        """If the provider sends such an event at all."""
        _hearing(calls)
        sent = calls.send(Fault.DECLINE)
        for event in _of_its_kind(calls, sent):
            message = f"the event {event.type} about a declined call is read as {event.said and name(event.said)}"
            must(event.key != sent.key or not isinstance(event.said, Succeeded | Pending), "outcome", message)


def _hearing(calls: Calls) -> None:
    applies(calls.provider.webhook is not None, "webhook is not set")


def _delivered(calls: Calls) -> tuple[Webhook, tuple[bytes, ...], list[Signed]]:
    """The webhook, its secrets for the account of the world, and the deliveries after a healthy call."""
    _hearing(calls)
    webhook = calls.provider.webhook
    assert webhook is not None
    calls.made()
    account = calls.world.account
    deliveries = [replace(each, url=each.url or webhook.urls.get(account)) for each in calls.world.deliveries()]
    world_must(bool(deliveries), "World.deliveries has nothing after a healthy call")
    secrets = webhook.secrets.get(account, ())
    must(bool(secrets), "webhook.secrets", f"the account {account} has none, so nothing is ever verified")
    return webhook, secrets, deliveries


def _verifies(webhook: Webhook, delivery: Signed, secrets: tuple[bytes, ...]) -> bool:
    try:
        verify(webhook.scheme, delivery, secrets, time.time())
    except Unverified:
        return False
    return True


def _changed(delivery: Signed) -> Iterator[Signed]:
    body = delivery.body
    for place in range(0, len(body), max(1, len(body) // FLIPS)):
        yield replace(delivery, body=body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :])
    yield replace(delivery, body=body[:-1])
    yield replace(delivery, body=body + b" ")


def _meaning(calls: Calls, body: bytes) -> object:
    """The meaning of the events of a delivery; None if they cannot be read."""
    events = calls.provider.read_events(body)
    return events and [(each.key, each.reference, each.said, each.later, each.ours) for each in events]


def _of_its_kind(calls: Calls, sent: SentCall) -> list[Event]:
    """Every event that the contract wants and that is about the kind of object that the call makes."""
    found: list[Event] = []
    for delivery in calls.world.deliveries():
        found += calls.provider.read_events(delivery.body) or ()
    kind = calls.provider.kind(sent.frozen.path)
    return [each for each in found if each.wanted and kind in (None, each.kind)]


def _about(calls: Calls, sent: SentCall) -> Event:
    """The last event about this call that can settle it, else the last event about it."""
    events = _of_its_kind(calls, sent)
    if calls.contract.events_settle:
        ours = [each for each in events if each.key == sent.key]
        must(bool(ours), "webhook.key", f"none of {len(events)} events names the key of the call")
    else:
        ours = [each for each in events if each.reference == sent.reference]
        must(bool(ours), "webhook.reference", f"none of {len(events)} events names the reference of the call")
    return next((each for each in reversed(ours) if each.said is not None), ours[-1])


def _agree(event: Event, sent: SentCall) -> None:
    must(event.reference == sent.reference, "webhook.reference", f"the event names the object {event.reference}, the "
         f"answer {sent.reference}")  # fmt: skip
    if event.said is None:
        must(event.bare, "outcome", f"no rule reads the object of the event as an end: {event.note}")
        return
    must(not isinstance(event.said, Refused), "outcome", f"the event says {name(event.said)}, the answer {sent.word}")
