"""`on_step` hears of each step that has ended, once and in order; `on_settled` hears nothing of that."""

import json
from pathlib import Path
from typing import Any

import pytest
from fix_waiting import stopping, until
from flows.local import local
from flows.order import step
from psycopg import IsolationLevel
from sqlalchemy import text
from sqlalchemy.orm import Session

from idem import Idem, Settled, Step
from idem.errors import ConfigError
from idem.outbox.handlers.handler import handler
from idem.outbox.handlers.runner import HandlerRunner
from idem.outcomes import Refused

TOLD = """
CREATE TABLE public.told (handler text, number integer, event text, step text, outcome text, reference text,
                          fields jsonb, state text, at xid8 NOT NULL DEFAULT pg_current_xact_id());
"""
TELL = text("""
INSERT INTO public.told (handler, number, event, step, outcome, reference, fields, state)
VALUES (:handler, :number, :event, :step, :outcome, :reference, CAST(:fields AS jsonb), :state)
""")


def telling(name: str) -> Any:
    def tell(db: Session, s: Settled[Any]) -> None:
        db.execute(TELL, {
            "handler": name, "number": s.number, "event": s.event, "step": s.step,
            "outcome": s.step_outcome or s.outcome, "reference": s.reference, "fields": json.dumps(dict(s.fields)),
            "state": s.state,
        })  # fmt: skip

    return tell


def handlers(**options: Any) -> dict[str, Any]:
    made = [
        handler("order", telling("steps"), name="steps", hears="step", **options),
        handler("order", telling("settled"), name="settled", **options),
    ]
    return {each.name: each for each in made}


async def told(shop: Any, name: str) -> list[tuple[Any, ...]]:
    found = await shop.spine.all("SELECT * FROM public.told WHERE handler = %(n)s ORDER BY at", n=name)
    return [(row["number"], row["event"], row["step"], row["outcome"]) for row in found]


async def test_each_step_is_told_once_and_in_order(shop: Any) -> None:
    await shop.spine.execute(TOLD)
    shop.define(local("ride", returned={"ride": 7}), step("charge", on_refusal="operator"))
    async with stopping(HandlerRunner(shop.spine.url, handlers())) as runner:
        await runner.run_once()
        shop.accepted()
        await shop.work()
        for _ in range(2):
            await runner.run_once()
    assert await told(shop, "steps") == [(1, "step", "ride", "succeeded"), (2, "step", "charge", "succeeded")]
    assert await told(shop, "settled") == [(3, "completed", None, "succeeded")]
    ride, charge = await shop.spine.all("SELECT * FROM public.told WHERE handler = 'steps' ORDER BY at")
    assert (ride["reference"], ride["fields"], ride["state"]) == (None, {"ride": 7}, "in_progress")
    assert (charge["reference"] or "").startswith("pay_") and charge["state"] == "completed"
    assert await shop.spine.all("SELECT FROM idem.handler_work") == []


async def test_a_refusal_a_skip_and_what_undoes_are_told(shop: Any) -> None:
    await shop.spine.execute(TOLD)
    shop.define(
        step("charge"), local("never", when=lambda params, results: False, on_refusal="operator"),
        local("pay", returned=Refused(None, "no"), on_refusal="compensate"), step("refund", undoes="charge"),
    )  # fmt: skip
    async with stopping(HandlerRunner(shop.spine.url, handlers())) as runner:
        await runner.run_once()
        shop.accepted()
        await shop.work(times=2)
        await runner.run_once()
    assert [(name, outcome) for _, _, name, outcome in await told(shop, "steps")] == [
        ("charge", "succeeded"), ("never", "skipped"), ("pay", "refused"), ("refund", "succeeded"),
    ]  # fmt: skip
    assert await told(shop, "settled") == [(5, "completed", None, "refused")]


async def test_a_new_one_that_begins_with_the_first_hears_of_steps_alone(shop: Any) -> None:
    await shop.spine.execute(TOLD)
    shop.define(local("ride"), local("pay", on_refusal="stop"))
    shop.accepted()
    await shop.work()
    async with stopping(HandlerRunner(shop.spine.url, handlers(begin="first"))) as runner:

        async def walked() -> bool:
            await runner.run_once()
            return not await shop.spine.all("SELECT FROM idem.event_handlers WHERE backfilled_intent IS NOT NULL")

        # The ids of transactions are the server's: the walk waits for one in another database too.
        await until(walked)
        await runner.run_once()
    assert [number for number, *_ in await told(shop, "steps")] == [1, 2]
    assert [number for number, *_ in await told(shop, "settled")] == [3]


async def test_one_that_its_events_transaction_could_not_see_hears_of_them_all_the_same(shop: Any) -> None:
    """REPEATABLE READ: events that were written before the handler was seen are given to it later, by their types."""
    await shop.spine.execute(TOLD)
    shop.define(local("ride"))
    intent = shop.accepted()
    await shop.work()
    async with shop.spine.database.connection() as connection:
        await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
        try:
            async with connection.transaction():
                await connection.execute("SELECT FROM idem.events")
                async with stopping(HandlerRunner(shop.spine.url, handlers())) as runner:
                    await runner.run_once()
                await connection.execute(
                    "INSERT INTO idem.events (aggregateid, number, type, payload)"
                    ' SELECT %(i)s, n, t, \'{"step": "late", "step_outcome": "skipped"}\''
                    "   FROM (VALUES (3, 'step'), (4, 'later_fact')) AS v (n, t)",
                    {"i": intent},
                )
        finally:
            await connection.set_isolation_level(None)
    async with stopping(HandlerRunner(shop.spine.url, handlers())) as runner:
        await runner.run_once()
        await runner.run_once()
    assert await told(shop, "steps") == [(3, "step", "late", "skipped")]
    assert [event for _, event, _, _ in await told(shop, "settled")] == ["later_fact"]


def test_an_operation_without_steps_tells_of_none(idem_toml: Path) -> None:
    with pytest.raises(ConfigError, match="it has no steps, so nothing would be told: use on_settled"):
        Idem(idem_toml).operation("o.x").on_step(name="x")


def test_one_function_may_hear_both(idem_toml: Path) -> None:
    idem = Idem(idem_toml)
    book = idem.operation("o.x", steps=[Step("ride", run=lambda db, params, results: None)])

    @book.on_step(name="tell")
    @book.on_settled(name="tell")
    def tell(db: Session, s: Settled[Any]) -> None: ...

    assert sorted(idem.handlers) == ["o.x:step:tell", "o.x:tell"]
    assert [idem.handlers[name].hears for name in sorted(idem.handlers)] == ["step", "settled"]
