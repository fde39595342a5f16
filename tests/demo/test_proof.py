"""The proof on records made by hand: silent about what is right, and loud about each thing that is wrong."""

from dataclasses import replace
from typing import Any

import pytest
from demo.conftest import Made

from idem.cli.demo.database_record import DeadLetterRow

BOTH = pytest.mark.parametrize("provider", ["bank", "oldbank"])
PENDING, CLAIMED, UNKNOWN = "in_progress/pending", "in_progress/claimed", "unknown/unknown"
HELD = "failed_retryable/held"
LOST = ("P1", "an accepted intent is lost: it is not completed, and no daemon works on it")
BLIND = ("P2", "a forbidden second send: there was no proof that nothing had happened")
EARLY = ("P2", "an absence was accepted too early")
NO_EVIDENCE = ("P4", "a change of state without evidence")
NO_LAST_EVIDENCE = ("P4", "the last change of state is without evidence")


@BOTH
def test_a_payment_that_went_well_is_no_finding(make: Any, provider: str) -> None:
    proof = make(provider).prove()
    assert proof.holds
    assert (proof.accepted, proof.effects_wanted, proof.effects_made, proof.requests_made) == (1, 1, 1, 1)
    assert proof.answers_compared == 3


def test_an_unknown_is_found_and_timed(made: Made) -> None:
    made.evidence[1:] = []
    made.change(11, "worker", "report", CLAIMED, UNKNOWN, attempt=1, outcome="ambiguous")
    made.look(11.5, "absent", attempt=1)
    made.look(13, "succeeded", "completed/", attempt=1)
    proof = made.prove()
    assert proof.holds
    assert proof.settled["found"].p99 == pytest.approx(2)


# P1


def test_an_accepted_intent_that_is_gone(made: Made) -> None:
    made.say("accepted", 9, "pay", intent="i2")
    gone = made.prove().findings[0]
    assert (gone.promise, gone.intent, gone.what) == ("P1", "i2", "an accepted intent is gone")


def test_an_open_payment_without_a_row(begun: Made) -> None:
    begun.lines[1:] = []
    begun.becomes(state="in_progress", key_state="in_progress", outcome=None, reference=None, status=None)
    assert LOST in begun.findings()
    assert begun.prove().lost == 1


ALONE = {
    "an answer without an effect": (lambda made: made.bank.clear(), "P1", "answered as done, but nothing was done"),
    "somebody else's payment": (lambda made: made.becomes(reference="pay_9"), "P1", "answered with another payment"),
    "a refusal that was charged": (
        lambda made: made.becomes(outcome="refused"), "P2", "answered as refused, but charged"
    ),
    "another body": (lambda made: made.say("replay", 13, body_sha256="f" * 64), "P3", "an answer changed"),
    "another status": (lambda made: made.say("replay", 13, status=202), "P3", "an answer changed"),
    "another header": (lambda made: made.say("replay", 13, headers={"x-a": "b"}), "P3", "an answer changed"),
    "another stored answer": (
        lambda made: made.becomes(answer_sha256="f" * 64), "P3", "an answer differs from the stored one"
    ),
    "it goes away": (lambda made: made.say("in_progress", 13, "after"), "P3", "a final answer went away"),
    "an attempt without an end": (lambda made: made.attempt_is(2), "P4", "an attempt has no end in evidence"),
    "a proof that waits": (lambda made: setattr(made, "unapplied", ("i1",)), "P5", "a stored proof was not applied"),
}  # fmt: skip
"""One thing that is wrong, and the one finding."""
AMONG = {
    "the key says something else": (
        lambda made: made.becomes(key_state="unknown"), "P1", "the key differs from its intent"
    ),
    "a rolled back intent": (
        lambda made: made.say("accepted", 9, "rolled_back", committed=False), "P1", "a rolled back intent exists"
    ),
    "the same content": (
        lambda made: made.say("mismatch", 10.2), "P3", "the same content was refused as different"
    ),
    "accepted twice": (lambda made: made.say("accepted", 10.2, "twice"), "P3", "one key was accepted twice"),
    "no evidence of accept": (lambda made: made.evidence.pop(0), "P4", "there is no evidence of accept"),
    "no evidence of the end": (lambda made: made.evidence.pop(1), *NO_LAST_EVIDENCE),
}  # fmt: skip
"""The finding may have others beside it."""


@pytest.mark.parametrize(("spoil", "promise", "what"), (ALONE | AMONG).values(), ids=[*ALONE, *AMONG])
def test_one_thing_that_is_wrong(made: Made, spoil: Any, promise: str, what: str, request: Any) -> None:
    spoil(made)
    found = made.findings()
    assert (promise, what) in found
    assert len(found) == 1 or request.node.callspec.id in AMONG


def test_an_effect_that_nobody_asked_for(made: Made) -> None:
    made.send(2, 12.0, reference="somebody")
    assert made.findings() == [("P2", "an effect without an accepted intent")]
    assert made.prove().duplicates == 1


# P2


def test_a_second_effect(made: Made) -> None:
    made.send(2, 10.15)
    found = made.findings()
    assert ("P2", "a duplicate effect") in found
    assert BLIND in found
    assert ("P2", "more requests than attempts") in found


def test_a_blind_second_send_that_the_bank_did_not_act_upon(begun: Made) -> None:
    """Forbidden all the same: that it did no harm was luck."""
    begun.send(1, 10.1, effect=None)
    begun.change(11, "worker", "report", CLAIMED, UNKNOWN, attempt=1, outcome="ambiguous")
    begun.send(2, 12.0)
    begun.change(12.1, "worker", "report", "unknown/claimed", "completed/", attempt=2, outcome="succeeded")
    begun.becomes(reference="pay_2")
    assert BLIND in begun.findings()
    assert begun.prove().forbidden_sends == 1


def test_a_second_send_after_a_proof_that_nothing_was_executed(begun: Made) -> None:
    begun.send(1, 10.1, effect=None)
    begun.change(10.2, "worker", "report", CLAIMED, PENDING, attempt=1, outcome="not_executed:throttled")
    begun.send(2, 12.0)
    begun.change(12.1, "worker", "report", CLAIMED, "completed/", attempt=2, outcome="succeeded")
    begun.becomes(reference="pay_2")
    assert begun.findings() == []
    assert begun.prove().second_sends == 1


def test_a_second_send_although_the_first_acted_in_the_end(begun: Made) -> None:
    """The evidence said "not executed"; the bank's log knows better."""
    begun.send(1, 10.1)
    begun.change(10.2, "worker", "report", CLAIMED, PENDING, attempt=1, outcome="not_executed:throttled")
    begun.send(2, 12.0)
    begun.change(12.1, "worker", "report", CLAIMED, "completed/", attempt=2, outcome="succeeded")
    found = begun.findings()
    assert ("P2", "a forbidden second send: an earlier send had acted") in found
    assert ("P2", "a duplicate effect") in found


@pytest.mark.parametrize(
    ("ended", "verdict_at", "early"),
    [
        ("report", 11 + 6 + 3 + 0.1, False),
        ("report", 11 + 6 + 3 - 0.1, True),
        ("swept", 13 + 6 + 15 + 3 + 0.1, False),
        ("swept", 13 + 6 + 3 + 0.1, True),
        ("reaped", 13 + 6 + 3 + 0.1, False),
    ],
)
def test_when_an_absence_may_be_believed(begun: Made, ended: str, verdict_at: float, early: bool) -> None:
    """Reported: flight limit and horizon. Swept: the pause allowance too, unless the holder's end is on record."""
    begun.send(1, 10.1, effect=None)
    if ended == "report":
        begun.change(11, "worker", "report", CLAIMED, UNKNOWN, attempt=1, outcome="ambiguous")
    else:
        details = {"holder_known": ended == "reaped"}
        begun.change(13.2, "sweeper", "swept", CLAIMED, UNKNOWN, attempt=1, claimed_until=13.0, details=details)
    begun.look(14, "absent", attempt=1)
    begun.look(verdict_at, "absent", HELD, attempt=1)
    begun.change(verdict_at + 1, "reconciler", "redrive", HELD, PENDING, attempt=1)
    begun.send(2, verdict_at + 2)
    begun.change(verdict_at + 3, "worker", "report", CLAIMED, "completed/", attempt=2, outcome="succeeded")
    begun.becomes(reference="pay_2")
    begun.lines[1:] = []
    assert begun.findings() == ([EARLY] if early else [])
    assert "absent" in begun.prove().settled


def test_one_look_is_too_few(begun: Made) -> None:
    begun.change(11, "worker", "report", CLAIMED, UNKNOWN, attempt=1, outcome="ambiguous")
    begun.look(40, "absent", HELD, attempt=1)
    assert ("P2", "an absence was accepted after too few look-ups") in begun.findings()


@pytest.mark.parametrize(
    ("sent", "ended", "more", "finding"),
    [
        (12, 12.1, {}, None),
        (10.1 + 4000 - 21 + 1, 3999, {}, "a forbidden second send: the bank may have forgotten the key"),
        (12, 12.1, {"body_sha256": "c" * 64}, "a request that differs from the frozen one"),
    ],
    ids=["the same key", "perhaps forgotten", "other bytes"],
)
def test_a_replay(make: Any, sent: float, ended: float, more: dict[str, str], finding: str | None) -> None:
    made = make("bank")
    made.evidence[1:] = []
    made.change(11, "worker", "report", CLAIMED, UNKNOWN, attempt=1, outcome="ambiguous")
    made.send(2, sent, effect="replayed", **more)
    made.change(ended, "reconciler", "replay", UNKNOWN, "completed/", attempt=2, outcome="succeeded")
    assert made.findings() == ([("P2", finding)] if finding else [])
    assert "replay" in made.prove().settled


# P3


def test_other_content_under_a_known_key(made: Made) -> None:
    made.say("mismatch", 10.2, "other_body")
    assert made.findings() == []
    made.say("replay", 13, "other_body")
    assert made.findings() == [("P3", "other content was accepted under a known key")]


# P4


def test_no_evidence_in_the_middle(make: Any) -> None:
    made = make("bank")
    made.evidence[1:] = []
    made.change(12.1, "reconciler", "replay", UNKNOWN, "completed/", attempt=1, outcome="succeeded")
    assert NO_EVIDENCE in made.findings()


def test_a_look_is_no_end_of_an_attempt_where_no_replay_is(begun: Made) -> None:
    begun.send(1, 10.1)
    begun.look(13, "succeeded", "completed/", attempt=1)
    assert {what for _, what in begun.findings()} >= {"an attempt has no end in evidence"}


def test_changes_of_the_same_millisecond_are_put_in_their_order(begun: Made) -> None:
    begun.send(1, 10.1, effect=None)
    begun.change(11, "worker", "report", CLAIMED, UNKNOWN, attempt=1, outcome="ambiguous")
    begun.look(20.5, "absent", attempt=1)
    begun.change(21, "reconciler", "redrive", HELD, PENDING, attempt=1)
    begun.look(21, "absent", HELD, attempt=1)
    begun.send(2, 22)
    begun.change(22.1, "worker", "report", CLAIMED, "completed/", attempt=2, outcome="succeeded")
    begun.becomes(reference="pay_2")
    assert begun.findings() == []


# P5


def test_something_open_at_the_end(begun: Made) -> None:
    begun.lines[1:] = []
    begun.becomes(state="in_progress", key_state="in_progress", outcome=None, reference=None, status="pending")
    assert begun.findings() == [("P5", "left unsettled at the end")]


def test_something_at_rest_that_nobody_was_told_of(begun: Made) -> None:
    begun.change(11, "worker", "report", CLAIMED, HELD, attempt=1, outcome="not_executed:request")
    begun.becomes(state="failed_retryable", key_state="failed_retryable", outcome=None, status="held", reference=None)
    begun.lines[1:] = []
    assert ("P5", "at rest without a dead letter") in begun.findings()


@pytest.mark.parametrize("still_open", [True, False])
def test_an_unexpected_dead_letter(made: Made, still_open: bool) -> None:
    made.letters.append(DeadLetterRow("i1", "too_late", 11, still_open))
    assert made.findings() == [("P5", "an unexpected dead letter")]
    assert made.prove().letters_unexpected == 1


def test_a_rejected_payment_has_its_dead_letter(begun: Made) -> None:
    begun.send(1, 10.1, effect=None)
    begun.change(11, "worker", "report", CLAIMED, HELD, attempt=1, outcome="not_executed:request")
    begun.becomes(state="failed_retryable", key_state="failed_retryable", outcome=None, status="held", reference=None)
    begun.lines[1:] = []
    begun.say("needs_operator", 12)
    begun.rules = replace(begun.rules, rejected=frozenset({"k1"}))
    begun.letters.append(DeadLetterRow("i1", "rejected", 11, True))
    proof = begun.prove()
    assert proof.holds
    assert (proof.letters_expected, proof.effects_wanted) == (1, 0)
    begun.letters.clear()
    assert ("P5", "a dead letter is missing") in begun.findings()
