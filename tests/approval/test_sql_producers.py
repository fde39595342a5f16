"""A program that accepts by SQL cannot run `approve`: the worker that renders its request decides."""

from typing import Any

import psycopg
import pytest
from approval.waiting import BIG, SMALL, Waiting
from fix_restore import notices
from producers.application import Application

from idem.outbox.domain.contract import ProviderRequest


async def test_the_worker_that_renders_it_decides(waiting: Waiting, application: Application) -> None:
    spine = waiting.spine
    decided = application.once("big", {"amount": BIG})
    big, small = decided.intent_id, application.accepted("small", {"amount": SMALL})
    assert decided.status == "unfrozen"
    assert [(await spine.row(each))["approval"] for each in (big, small)] == ["undecided", "undecided"]
    assert await spine.works() == 1 and await spine.status(small) is None
    row = await spine.row(big)
    assert (row["status"], row["approval"]) == ("approval", "wanted")
    assert application.once("big", {"amount": BIG}).status == "approval"
    (role,) = [each for (each,) in application.rows("SELECT session_user::text")]
    told = await waiting.evidence(big, "rendered")
    assert (told["to_status"], told["details"]) == ("approval", {"approval": "wanted", "asked_by": role})
    await waiting.waits_beside(big, 1)
    assert (await waiting.approve(big)).status == "pending", "its request is frozen"
    assert await spine.works() == 2


@pytest.mark.parametrize("wrong", [lambda p: 1, lambda p: None, lambda p: p["nothing"]])
async def test_what_cannot_say_it_is_at_rest(waiting: Waiting, application: Application, wrong: Any) -> None:
    spine = waiting.spine
    right = spine.catalogue.operations["pay.keyed"].approve
    waiting.define(approve=wrong)
    intent = application.accepted("k1", {"amount": BIG})
    assert await spine.works() == 0
    row = await spine.row(intent)
    assert (row["status"], row["approval"]) == ("held", "undecided") and await spine.letters(intent) == ["unrenderable"]
    again = application.once("k1", {"amount": BIG})
    assert (again.decision, again.status) == ("retrying", "unfrozen")
    waiting.define(approve=right)
    assert await spine.works() == 0 and await spine.status(intent) == "approval"


async def test_code_that_hangs_releases_nothing(waiting: Waiting, application: Application) -> None:
    import threading

    spine, gone = waiting.spine, threading.Event()
    waiting.define(approve=lambda params: gone.wait(30))
    intent = application.accepted("k1", {"amount": BIG})
    assert await spine.works() == 0
    assert (await spine.row(intent))["approval"] == "undecided"
    gone.set()


async def test_what_is_not_decided_yet_is_never_sent(waiting: Waiting, application: Application) -> None:
    """Nothing but the worker that renders it moves it on: and it cannot be approved before."""
    spine = waiting.spine
    intent = application.accepted("k1", {"amount": BIG})
    await waiting.refuses("does not wait for an approval", "approve", intent)
    await spine.advance(90_000)
    await spine.sweep()
    assert (await spine.act("redrive", intent)).status == "unfrozen"
    assert await spine.works() == 0
    await waiting.waits(intent)


async def test_a_redrive_that_renders_it_decides_too(waiting: Waiting, application: Application) -> None:
    """Under a new provider key too."""
    spine = waiting.spine

    def broken(params: Any) -> ProviderRequest:
        raise ValueError("a bug")

    right = spine.catalogue.operations["pay.keyed"].request
    waiting.define(request=broken)
    big, small = application.accepted("b", {"amount": BIG}), application.accepted("s", {"amount": SMALL})
    assert await spine.works() == 0
    waiting.define(request=right)
    for intent in (big, small):
        assert (await spine.act("redrive", intent, new_provider_key=True)).status == "unfrozen"
    assert await spine.works() == 1
    await waiting.waits_beside(big, 1)


async def test_what_lost_commits_may_have_sent_is_not_sent_undecided(
    waiting: Waiting, application: Application
) -> None:
    spine = waiting.spine
    intent = application.accepted("k1", {"amount": BIG}, operation="pay.keyless")
    await notices(spine, system_identifier=1)
    assert await spine.status(intent) == "unknown"
    for action in ("resolve_failed", "redrive"):
        await spine.act(action, intent, know_it_did_not_happen=True)
    assert await spine.status(intent) == "unfrozen"
    assert await spine.works() == 0 and await spine.status(intent) == "approval"


async def test_the_role_that_asked_is_the_one_who_asked(waiting: Waiting, application: Application) -> None:
    spine = waiting.spine
    intent = application.accepted("k1", {"amount": SMALL}, operation="pay.keyed.two")
    assert await spine.works() == 0
    (role,) = [each for (each,) in application.rows("SELECT session_user::text")]
    assert (await spine.row(intent))["approval"] == "wanted_of_another"
    await waiting.refuses("wants the approval of another person", "approve", intent, by=f"{role}@desk")


def test_a_producer_says_nothing_about_approvals(waiting: Waiting, application: Application) -> None:
    with psycopg.connect(waiting.spine.url) as connection, pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(
            "SELECT idem.accept('t', 'pay.keyed', 'k', 'v1:0', '{}', NULL, 'keyed', 'keyed', 'o', gen_random_uuid(),"
            " 'POST', '/', '{}', '', '1 d', '1 d', 0, false, NULL, p_approval => 'given')"
        )
