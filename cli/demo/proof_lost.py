"""P1: nothing accepted is lost, and nothing that was not accepted happens."""

from collections.abc import Iterator

from idem.cli.demo.proof_records import BrokenPromise, ProofCase, Records


def lost(records: Records) -> Iterator[BrokenPromise]:
    """Accepted intents that are gone, that no daemon works on, or whose answer has no effect behind it."""
    known = {case.intent.id: case for case in records.cases}
    accepted = {line.intent: line for line in records.clients if line.is_acceptance}
    for intent, line in accepted.items():
        if intent not in known:
            seen = "clients: accepted and committed; database: no such intent"
            yield BrokenPromise("P1", "an accepted intent is gone", intent, line.key, seen)
    for case in records.cases:
        yield from _unfinished(case)
        yield from _empty_answer(case)


def never_accepted(records: Records) -> Iterator[BrokenPromise]:
    """Intents that were rolled back or never requested, but exist."""
    there = {case.intent.id for case in records.cases}
    for line in records.clients:
        if line.committed is False and line.intent in there and line.said == "accepted":
            seen = "clients: rolled back after accept; database: the intent exists"
            yield BrokenPromise("P1", "a rolled back intent exists", line.intent, line.key, seen)
    for payment in records.strangers:
        seen = f"bank: payment {payment.id} under {payment.key or payment.reference}; database: no such request"
        yield BrokenPromise("P2", "an effect without an accepted intent", None, None, seen)


def _unfinished(case: ProofCase) -> Iterator[BrokenPromise]:
    intent = case.intent
    if intent.key_state is None or intent.key_state != intent.state:
        yield case.finding("P1", "the key differs from its intent", f"key: {intent.key_state}")
    if intent.state == "completed" or intent.status is not None:
        return
    if any(letter.open for letter in case.letters):
        return
    yield case.finding("P1", "an accepted intent is lost: it is not completed, and no daemon works on it")


def _empty_answer(case: ProofCase) -> Iterator[BrokenPromise]:
    intent = case.intent
    if case.is_flow:
        return
    if intent.outcome == "succeeded" and not case.charged:
        yield case.finding("P1", "answered as done, but nothing was done")
    if intent.outcome == "succeeded" and case.charged and intent.reference not in [p.id for p in case.charged]:
        yield case.finding("P1", "answered with another payment", f"reference {intent.reference}")
