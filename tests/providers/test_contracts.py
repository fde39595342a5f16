from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from idem.outbox.domain.contract import CancelRule, Contract, EventRule, KeyRule, LookupRule
from idem.outbox.domain.limits import Limits
from idem.outbox.providers.contract_checks import check, completed

STORED = KeyRule("header", "Idempotency-Key", "stored", retention=86400, margin=1020)
SOUND = Contract("bank", STORED, LookupRule(by_key=True, horizon=60))


def found(contract: Contract = SOUND, **changes: Any) -> list[tuple[str, str]]:
    said = {"lease": 60.0, "margin": 5.0, **changes}
    return [(finding.level, finding.where) for finding in check(contract, **said)]


def test_a_sound_contract_has_no_findings() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"deadline": 60.0}, ("error", "deadline")),
        ({"deadline": 56.0}, ("error", "deadline")),
        ({"deadline": 0.0}, ("error", "deadline")),
        ({"connect_timeout": 21.0}, ("warning", "connect_timeout")),
        ({"flight_limit": 19.0}, ("error", "flight_limit")),
        ({"pause_allowance": -1.0}, ("error", "pause_allowance")),
        ({"schedule": (5, 60, 180)}, ("error", "schedule")),
        ({"schedule": (5, 60, 1000)}, ("warning", "schedule")),
        ({"schedule": ()}, ("error", "schedule")),
        ({"schedule": (60, 5, 86400)}, ("error", "schedule")),
        ({"pending_schedule": ()}, ("error", "pending_schedule")),
        ({"pending_schedule": (0, 5)}, ("error", "pending_schedule")),
        ({"pending_limit": 0.0}, ("error", "pending_limit")),
        ({"retry_after_cap": 0.0}, ("error", "retry_after_cap")),
        ({"limits": Limits(exact=True)}, ("warning", "limits.exact")),
        ({"verified": "last spring"}, ("error", "verified")),
        ({"key": replace(STORED, margin=1019)}, ("error", "key.margin")),
        ({"key": replace(STORED, retention=0)}, ("error", "key.retention")),
        ({"key": replace(STORED, retention=2039)}, ("warning", "key.retention")),
        ({"key": replace(STORED, name=None)}, ("error", "key.name")),
        ({"key": replace(STORED, name="Idempotency Key")}, ("error", "key.name")),
        ({"key": KeyRule("none", None, "stored", 86400, 1020), "start_mark": True}, ("error", "key.replay")),
        ({"key": KeyRule("none", "X"), "start_mark": True}, ("error", "key.name")),
        ({"key": KeyRule("none")}, ("warning", "start_mark")),
        ({"lookup": LookupRule(by_key=True, horizon=-1)}, ("error", "lookup.horizon")),
        ({"lookup": LookupRule(by_key=True, agree=0)}, ("error", "lookup.agree")),
        ({"on_unsettleable": "assume_done"}, ("error", "on_unsettleable")),
        ({"on_unsettleable": "assume_not_done"}, ("error", "on_unsettleable")),
        ({"retention_max": 86399.0}, ("error", "retention_max")),
        ({"schedule": (90000,)}, ("error", "schedule")),
        ({"event_rule": EventRule(redelivery=-1)}, ("error", "webhook.redelivery")),
        ({"strategies": ("replay", "replay")}, ("error", "settle")),
        ({"strategies": ("cancel_by_key", "lookup")}, ("error", "settle")),
        ({"strategies": ("lookup",), "lookup": LookupRule()}, ("error", "settle")),
        ({"strategies": ("replay",), "key": replace(STORED, replay="success_only")}, ("error", "settle")),
        ({"strategies": ("replay",), "key": replace(STORED, replay="none")}, ("error", "settle")),
        ({"late_effects": True, "key": replace(STORED, replay="none")}, ("warning", "late_effects")),
    ],
)
def test_each_mistake_is_found(changes: dict[str, Any], expected: tuple[str, str]) -> None:
    assert expected in found(replace(SOUND, **changes))


def test_without_anything_to_settle_with_it_must_be_said_what_happens() -> None:
    mail = completed(Contract("mail"))
    assert found(mail, said_unsettleable=False) == [("error", "on_unsettleable")]
    assert found(mail, said_unsettleable=True) == []
    told = replace(mail, schedule=(*mail.schedule, 4 * 86400))
    assert found(told, said_unsettleable=False, events=True) == []
    assert found(replace(mail, cancel=CancelRule()), said_unsettleable=False) == []
    by_id = replace(mail, lookup=LookupRule(by_id=True))
    assert found(by_id, said_unsettleable=False) == [("error", "on_unsettleable")]
    only_2xx = replace(mail, key=KeyRule("header", "X", "success_only", 86400, 1020))
    assert found(only_2xx, said_unsettleable=False) == [("error", "on_unsettleable")]


def test_a_floor_below_twice_the_margin_is_no_replay() -> None:
    short = replace(SOUND, key=replace(STORED, retention=2039), lookup=LookupRule())
    assert not short.replays
    assert found(short, said_unsettleable=False) == [("warning", "key.retention"), ("error", "on_unsettleable")]


def test_the_start_mark_is_on_where_no_key_is_carried() -> None:
    assert completed(Contract("x")).start_mark
    assert not completed(Contract("x"), start_mark=False).start_mark
    assert not completed(SOUND).start_mark
    assert completed(SOUND, start_mark=True).start_mark


def test_a_finding_says_where_what_and_what_to_do() -> None:
    (finding,) = check(replace(SOUND, deadline=60.0), lease=60.0, margin=5.0)
    assert str(finding) == (
        "deadline: a call may take 1m, but its lease ends after 1m. "
        "Make it shorter than worker.lease, or worker.lease longer"
    )


def test_a_cancel_beside_events_needs_a_look() -> None:
    told = replace(SOUND, cancel=CancelRule(), lookup=LookupRule())
    assert ("error", "cancel_by_key") in found(told, events=True)
    assert ("error", "cancel_by_key") not in found(told)
    assert ("error", "cancel_by_key") not in found(replace(told, lookup=LookupRule(by_id=True)), events=True)


def test_a_schedule_reaches_past_the_last_redelivery_where_events_alone_can_settle() -> None:
    told = completed(Contract("mail"))
    assert found(told, events=True) == [("error", "schedule")]
    assert found(replace(told, event_rule=EventRule(redelivery=86399)), events=True) == []
    assert found(replace(told, lookup=LookupRule(by_reference=True)), events=True) == []
    assert found(replace(SOUND, lookup=LookupRule()), events=True) == []


@pytest.mark.parametrize("order", ["assume_done", "assume_not_done"])
def test_a_standing_order_stands_only_where_no_value_is_at_risk(order: Any) -> None:
    mail = replace(completed(Contract("mail")), on_unsettleable=order)
    assert found(mail) == [("error", "on_unsettleable")]
    assert found(replace(mail, value_at_risk="none")) == []
    assert found(replace(SOUND, value_at_risk="none")) == []


def test_every_way_to_settle_that_there_is_may_stand_in_the_order() -> None:
    every = replace(
        SOUND, cancel=CancelRule(blocks_late_requests=True), strategies=("cancel_by_key", "lookup", "replay")
    )
    assert found(every) == []
    by_id = replace(SOUND, lookup=LookupRule(by_id=True), strategies=("lookup",))
    assert found(by_id) == []


@pytest.mark.parametrize(
    ("verified", "expected"),
    [
        (None, [("warning", "verified")]),
        ("2026-11-28", []),
        ("2026-11-29", []),
        ("2026-11-30", [("error", "verified")]),
        ("2027-01-01", [("error", "verified")]),
        ("2025-11-28", []),
        ("2025-11-27", [("warning", "verified")]),
        ("28.11.2026", [("error", "verified")]),
    ],
)
def test_facts_are_believed_for_a_year_and_never_before_they_were_checked(
    verified: str | None, expected: list[tuple[str, str]]
) -> None:
    """A day ahead is no future: where it was written it may be tomorrow already."""
    assert found(replace(SOUND, verified=verified), today=date(2026, 11, 28)) == expected
    about = found(replace(SOUND, verified=verified), today=date(2026, 11, 28), believed=400 * 86400)
    assert about == (expected if verified != "2025-11-27" else [])


@pytest.mark.parametrize(
    "limits", [{"concurrency": 0}, {"rate": 0}, {"lookup_share": 0}, {"lookup_share": 1}, {"processes": 0}]
)
def test_a_limit_that_would_stop_a_provider_is_refused(limits: dict[str, float]) -> None:
    """`idem pause` stops one."""
    with pytest.raises(ValidationError):
        Limits.model_validate(limits)
