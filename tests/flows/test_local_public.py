"""Local steps as a user writes them: an `Idem`, the lab, params of a model; and as SQL accepts them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fix_sql import query
from flows.local import ROWS, WRITE, local
from flows.order import step
from producers.application import Application, synced
from pydantic import BaseModel
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from idem import Answer, Idem, Request, Settled, Step
from idem.errors import ConfigError
from idem.outbox.values.errors import ParamsInvalid
from idem.testing.lab import Lab
from idem.testing.scripted import ScriptedBank


class Ride(BaseModel):
    amount: int


def book(db: Session, p: Ride, results: Any) -> dict[str, Any]:
    db.execute(WRITE, {"step": "book", "amount": p.amount, "said": type(p).__name__})
    return {"seat": p.amount + 1}


async def paid(db: AsyncSession, p: Ride, results: Any) -> None:
    said = f"{results['book'].fields['seat']} {results['charge'].status}"
    await db.execute(WRITE, {"step": "paid", "amount": p.amount, "said": said})


@pytest.fixture
def lab(idem_toml: Path, db_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Lab]]:
    monkeypatch.setenv("LEDGER_TOKEN", "secret")
    query(db_url, ROWS)
    idem = Idem(idem_toml)
    ride = idem.operation(
        "rides.create",
        Ride,
        steps=[
            Step("book", run=book),
            Step("charge", provider="ledger", on_refusal="operator",
                 request=lambda p, r: Request("POST", "/payments", json={"amount": p.amount, "currency": "eur"})),
            Step("paid", run=paid, on_refusal="operator"),
        ],
        answer=lambda o: Answer(201, {"seat": o.steps["book"].fields["seat"]}),
    )  # fmt: skip

    @ride.on_step
    def tell(db: Session, s: Settled[Ride]) -> None:
        db.execute(WRITE, {"step": "told", "amount": s.params.amount, "said": f"{s.step} {s.step_outcome}"})

    with ScriptedBank().in_thread() as bank:
        made = Lab(idem, db_url, bank)
        yield ride, made
        made.close()


def test_the_lab_runs_local_steps_and_tells_of_them(lab: tuple[Any, Lab]) -> None:
    ride, daemons = lab
    engine = create_engine(daemons.url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as db:
        ride.accept(db, Ride(amount=6), key="r1")
    daemons.settle()
    assert daemons.intent("r1").answer == {"seat": 7}
    found = query(daemons.url, "SELECT step, said FROM public.rows ORDER BY at")
    assert [row for row in found if row[0] != "told"] == [("book", "Ride"), ("paid", "7 succeeded")]
    assert [said for name, said in found if name == "told"] == ["book succeeded", "charge succeeded", "paid succeeded"]
    assert daemons.dead_letters == []
    engine.dispose()


def sync_with_async(db: AsyncConnection, p: Any, results: Any) -> None: ...


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"run": 5}, "give a function, not 5"),
        ({"run": lambda db, p: None}, "it must take three parameters, the session, the params and the results so far"),
        ({"run": sync_with_async}, "the function is synchronous and takes a AsyncConnection: it needs a Session"),
        (
            {"run": book, "request": lambda p, r: None},
            "request=, account= and completes_when= are of a step that calls",
        ),
        ({"run": book, "account": "main"}, "leave them out"),
        ({}, "say provider= with request=, or run="),
    ],
)
def test_a_local_step_that_cannot_be_one(idem_toml: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Idem(idem_toml).operation("rides.create", steps=[Step("book", **given)])


def refuse_odd(params: Any) -> None:
    if params["amount"] % 2:
        raise ParamsInvalid([("/amount", "it is odd")])


async def test_sql_accepts_a_flow_that_begins_with_a_local_step(shop: Any) -> None:
    shop.define(local("ride"), step("charge", on_refusal="operator"))
    known = shop.spine.catalogue.operations
    words: dict[str, Any] = {"validate": refuse_odd, "label": lambda params: f"for {params['amount']}"}
    steps = tuple(replace(each, **words) for each in known["order"].steps)
    order = replace(known["order"], steps=steps, **words)
    shop.spine.catalogue = replace(shop.spine.catalogue, operations={**known, "order": order})
    synced(shop.spine.url, shop.spine.catalogue)
    application = Application(shop.spine.url)
    for amount in (6, 7):
        application.once(f"k{amount}", {"amount": amount}, operation="order")
    await shop.work(times=2)
    done = await shop.spine.all("SELECT idempotency_key AS key, state, label FROM idem.intents ORDER BY id")
    assert done == [
        {"key": "k6", "state": "completed", "label": "for 6"},
        {"key": "k7", "state": "failed_retryable", "label": None},
    ]
    assert await shop.spine.all("SELECT reason, details ->> 'error' AS e FROM idem.dead_letters") == [
        {"reason": "unrenderable", "e": "ParamsInvalid"}
    ]
    assert shop.effects() == ["charge"] and len(await shop.rows()) == 1
