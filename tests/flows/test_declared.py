"""Flows of idem.toml at the bank, accepted by Python and by SQL alone: from the first call to the stored answer."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fix_desk import CONFIGURATION
from fix_spine import Spine
from producers.application import Application, synced

from idem.decisions import NeedsOperator, Replay
from idem.outbox.config import load

STEPS = """
[operations."rides.book"]
label = "ride {ride}"
params = { type = "object", required = ["ride", "amount"], properties = { ride = {}, amount = {}, tip = {} } }
completes_when = COMPLETES

[[operations."rides.book".steps]]
name = "charge"
provider = "keyed"
path = "/payments"
body = { amount = "{amount}", currency = "eur" }
[operations."rides.book".steps.undo]
name = "refund"
provider = "keyed"
path = "/payments"
body = { amount = 1, currency = "eur", metadata = { of = "{idem.steps.charge.reference}" } }

[[operations."rides.book".steps]]
name = "tip"
provider = "keyed"
path = "/payments"
when = { "/tip" = { exists = true } }
body = { amount = "{tip}", currency = "eur", metadata = { ride = "{idem.steps.charge.reference}" } }
on_refusal = "ON_REFUSAL"

[[operations."rides.book".steps]]
name = "receipt"
provider = "keyed"
path = "/payments"
body = { amount = 3, currency = "eur", metadata = { of = "{idem.steps.charge.reference} {idem.steps.tip.outcome}" } }
on_refusal = "ON_REFUSAL"

[operations."rides.book".answer.succeeded]
status = 201
body = { payment = "{idem.steps.charge.reference}", tip = "{idem.steps.tip.outcome?}" }
[operations."rides.book".answer.refused]
status = 402
body = { charge = "{idem.steps.charge.outcome}", refund = "{idem.steps.refund.outcome?}" }
"""
RIDE = {"ride": "r1", "amount": 900}


def configured(spine: Spine, folder: Path, *, on_refusal: str = "compensate", completes: str | None = None) -> None:
    """The spine with the providers and operations of an idem.toml."""
    steps = STEPS.replace("ON_REFUSAL", on_refusal).replace("completes_when = COMPLETES", completes or "")
    (folder / "idem.toml").write_text(CONFIGURATION.replace("ORIGIN", spine.bank.url) + steps)
    found = load(folder / "idem.toml", {"BANK_TOKEN": "keyed-token"})
    spine.catalogue = replace(spine.catalogue, providers=found.providers, operations=found.operations)
    spine.acceptor.operations, spine.acceptor.providers = found.operations, found.providers


def payments(spine: Spine) -> list[Any]:
    return [each for each in spine.bank.log.payments() if each.status != "declined"]


async def steps_of(spine: Spine, intent: Any) -> list[tuple[str, str]]:
    ended = "SELECT name, outcome FROM idem.steps WHERE intent_id = %(i)s ORDER BY step"
    return [(row["name"], row["outcome"]) for row in await spine.all(ended, i=intent)]


def answered(spine: Spine, params: Any) -> tuple[int, Any]:
    decided = spine.accept(operation="rides.book", params=params)
    assert isinstance(decided, Replay), decided
    return decided.answer.status, json.loads(decided.answer.body)


@pytest.mark.parametrize("by", ["python", "sql"])
@pytest.mark.parametrize("tip", [None, 70])
async def test_every_step_is_made_once(spine: Spine, tmp_path: Path, by: str, tip: int | None) -> None:
    configured(spine, tmp_path)
    params = RIDE if tip is None else {**RIDE, "tip": tip}
    if by == "python":
        intent = spine.accepted(operation="rides.book", params=params)
    else:
        synced(spine.url, spine.catalogue)
        intent = Application(spine.url).accepted("k1", params, operation="rides.book")
    await spine.work(times=5)
    charge, *_, receipt = payments(spine)
    assert [each.amount for each in payments(spine)] == [900, *([] if tip is None else [tip]), 3]
    outcome = "skipped" if tip is None else "succeeded"
    assert receipt.details["metadata"] == {"of": f"{charge.id} {outcome}"}
    assert await steps_of(spine, intent) == [("charge", "succeeded"), ("tip", outcome), ("receipt", "succeeded")]
    assert answered(spine, params) == (201, {"payment": charge.id, "tip": outcome})
    found = await spine.one("SELECT state, label FROM idem.intents WHERE id = %(i)s", i=intent)
    assert found == {"state": "completed", "label": "ride r1"}


@pytest.mark.parametrize("by", ["python", "sql"])
async def test_a_refusal_undoes_what_is_done(spine: Spine, tmp_path: Path, by: str) -> None:
    configured(spine, tmp_path)
    if by == "python":
        intent = spine.accepted(operation="rides.book", params=RIDE)
    else:
        synced(spine.url, spine.catalogue)
        intent = Application(spine.url).accepted("k1", RIDE, operation="rides.book")
    await spine.work()
    await spine.work(faults=["decline"])
    await spine.work(times=2)
    charge, refund = payments(spine)
    assert refund.details["metadata"] == {"of": charge.id}
    assert await steps_of(spine, intent) == [
        ("charge", "succeeded"), ("tip", "skipped"), ("receipt", "refused"), ("refund", "succeeded"),
    ]  # fmt: skip
    assert answered(spine, RIDE) == (402, {"charge": "succeeded", "refund": "succeeded"})


async def test_an_operator_decides_where_it_says_so(spine: Spine, tmp_path: Path) -> None:
    configured(spine, tmp_path, on_refusal="operator")
    intent = spine.accepted(operation="rides.book", params=RIDE)
    await spine.work()
    await spine.work(faults=["decline"], times=2)
    assert await spine.letters(intent) == ["partial"]
    assert isinstance(spine.accept(operation="rides.book", params=RIDE), NeedsOperator)


async def test_the_client_has_its_answer_while_later_steps_run(spine: Spine, tmp_path: Path) -> None:
    configured(spine, tmp_path, on_refusal="operator", completes='completes_when = "step:charge"')
    intent = spine.accepted(operation="rides.book", params=RIDE)
    await spine.work()
    (charge,) = payments(spine)
    told = answered(spine, RIDE)
    assert told == (201, {"payment": charge.id})
    assert await spine.value("SELECT state FROM idem.intents WHERE id = %(i)s", i=intent) == "in_progress"
    await spine.work(times=3)
    assert await spine.value("SELECT state FROM idem.intents WHERE id = %(i)s", i=intent) == "completed"
    assert answered(spine, RIDE) == told


async def test_a_synced_operation_shows_what_its_plan_was(spine: Spine, tmp_path: Path) -> None:
    """SQL accepts by the plan of the last sync; what was accepted keeps the one that it has."""
    configured(spine, tmp_path)
    synced(spine.url, spine.catalogue)
    intent = Application(spine.url).accepted("k1", RIDE, operation="rides.book")
    configured(spine, tmp_path, on_refusal="operator")
    (changed,) = [each for each in synced(spine.url, spine.catalogue) if each.what == "changed"]
    assert changed.name == "rides.book" and changed.changes[0].startswith("plan: ")
    other = Application(spine.url).accepted("k2", RIDE, operation="rides.book")
    plans = {
        each["id"]: [step["on_refusal"] for step in each["plan"]]
        for each in await spine.all("SELECT id, plan FROM idem.intents")
    }
    assert plans[intent] == ["stop", "compensate", "compensate", "stop"]
    assert plans[other] == ["stop", "operator", "operator", "stop"]
