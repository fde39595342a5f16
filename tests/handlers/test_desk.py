"""The dead letter of a handler, as an operator meets it at the command line."""

from typing import Any
from uuid import UUID

from fix_desk import Desk
from sqlalchemy import text
from sqlalchemy.orm import Session

from idem import Settled
from idem.outbox.handlers.handler import handler
from idem.outbox.handlers.runner import HandlerRunner
from idem.outcomes import Succeeded

WHY = ("--reason", "mended in release 41", "--yes")


async def stopped(desk: Desk, mended: list[bool], *keys: str) -> tuple[HandlerRunner, list[UUID]]:
    """Intents that have settled, and a handler that failed at each."""

    def book(db: Session, settled: Settled[Any]) -> None:
        if not mended:
            raise KeyError("no such order")

    known = handler("pay.keyed", book, name="shop.book")
    runner = HandlerRunner(desk.spine.url, {known.name: known}, attempts=1)
    await runner.run_once()
    intents = [await desk.after(key, Succeeded(f"pay_{key}")) for key in keys]
    assert await runner.run_once() == 0
    return runner, intents


async def letters(desk: Desk) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await desk.cli("dlq", "list", "--json")).data["dead_letters"]
    return found


async def test_it_is_shown_with_what_can_be_done_and_redriven(desk: Desk) -> None:
    mended: list[bool] = []
    runner, (intent,) = await stopped(desk, mended, "k1")
    (letter,) = await letters(desk)
    assert letter["reason"] == "handler_failed" and letter["details"]["handler"] == "pay.keyed:shop.book"
    shown = await desk.cli("dlq", "show", letter["id"])
    assert shown.code == 0 and str(intent) in shown.out
    assert "runs handler pay.keyed:shop.book again" in shown.out and "skips event 1" in shown.out
    for act in (("discard",), ("resolve", "--as", "failed_retryable")):
        wrong = await desk.cli("dlq", act[0], letter["id"], *act[1:], *WHY)
        assert wrong.code == 1 and "Possible now: redrive, resolve --as closed" in wrong.err, wrong
    done = await desk.cli("dlq", "redrive", letter["id"], *WHY)
    assert done.code == 0 and "handler_redriven" in done.out, done
    mended.append(True)
    assert await runner.run_once() == 1
    await runner.close()
    assert await letters(desk) == []
    again = await desk.cli("dlq", "redrive", letter["id"], *WHY)
    assert again.code == 1 and "Traceback" not in again.err


async def test_the_doctor_warns_from_the_first_failure(desk: Desk) -> None:
    def book(db: Session, settled: Settled[Any]) -> None:
        db.execute(text("SELECT FROM nowhere"))

    known = handler("pay.keyed", book, name="shop.book")
    runner = HandlerRunner(desk.spine.url, {known.name: known})
    await runner.run_once()
    await desk.after("k1", Succeeded("pay_k1"))
    assert await runner.run_once() == 0
    await runner.close()
    findings = (await desk.cli("doctor", "--json")).data["findings"]
    (found,) = [each for each in findings if each["check"] == "handlers" and each["level"] != "ok"]
    assert (found["level"], found["what"]) == ("warning", "handler pay.keyed:shop.book fails and is retried: 1 event")
    assert "`handler_failed`" in found["do"]


async def test_closing_it_skips_the_event(desk: Desk) -> None:
    mended: list[bool] = []
    runner, (intent,) = await stopped(desk, mended, "k1")
    (letter,) = await letters(desk)
    done = await desk.cli("dlq", "resolve", letter["id"], "--as", "closed", *WHY)
    assert done.code == 0 and "handler_skipped" in done.out, done
    mended.append(True)
    assert await runner.run_once() == 0
    await runner.close()
    assert (await desk.spine.one("SELECT skipped FROM idem.handled_events"))["skipped"]
    assert ("operator", "handler_skipped", None) in await desk.spine.evidence(intent)


async def test_many_are_redriven_at_once_where_the_number_is_expected(desk: Desk) -> None:
    mended: list[bool] = []
    runner, _ = await stopped(desk, mended, "k1", "k2", "k3")
    many = ("dlq", "redrive", "--reason-code", "handler_failed", "--expect")
    refused = await desk.cli(*many, 2, *WHY)
    assert refused.code == 1 and "3 intents match" in refused.err
    done = await desk.cli(*many, 3, *WHY)
    assert done.code == 0 and "redriven: 3" in done.out, done
    mended.append(True)
    assert await runner.run_once() == 3
    await runner.close()
