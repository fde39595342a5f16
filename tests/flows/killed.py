"""All daemons of a flow of four steps in one process, for tests that kill it. Its last step is refused, so that the
charge is refunded."""

import asyncio
from dataclasses import replace

import fix_spine
from flows.order import answer

from idem.outbox.config.settings import ReconcilerSettings, WorkerSettings
from idem.outbox.daemon.daemon import stop_event
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import ProviderRequest
from idem.outbox.domain.operation import OperationSpec, StepSpec
from idem.outbox.observe import telemetry
from idem.outbox.providers.template import KEY_TEXT
from idem.outbox.worker.worker import Worker
from idem.reconciler.daemon import Reconciler
from idem.sweeper.daemon import Sweeper

STEPS = ("charge", "ship", "receipt", "notify")


def _step(name: str, kind: str, **changes: object) -> StepSpec:
    def request(params: object, results: object) -> ProviderRequest:
        body = {"amount": 5, "currency": "eur"} | ({"reference": KEY_TEXT} if kind == "keyless" else {})
        return ProviderRequest("POST", f"/payments?step={name}", json=body)

    return replace(StepSpec(name, "call", request=request), **changes)  # type: ignore[arg-type]


def _flow(kind: str) -> OperationSpec:
    base = fix_spine.operation(f"order.{kind}", kind, answer=answer)
    steps = (
        *(_step(name, kind, on_refusal="compensate" if name != "charge" else "stop") for name in STEPS),
        _step("refund", kind, undoes="charge"),
    )
    return replace(base, steps=tuple(replace(base, step=each) for each in steps))


def catalogue(url: str) -> Catalogue:
    """The flow over both kinds of accounts, which are asked soon about what is not known."""
    known = fix_spine.catalogue(url)
    soon = {
        name: replace(each, contract=replace(each.contract, schedule=(0.2, 0.5, 1, 2, 5, 600)))  # type: ignore[type-var]
        for name, each in known.providers.items()
    }
    return replace(known, providers=soon, operations={f"order.{kind}": _flow(kind) for kind in ("keyed", "keyless")})


def run(database_url: str, bank_url: str) -> None:
    """Work until SIGTERM, or until somebody kills this process."""
    telemetry.set_up(json=True, level="error")
    asyncio.run(_run(database_url, catalogue(bank_url)))


async def _run(database_url: str, known: Catalogue) -> None:
    database = Database(database_url, name="idem-killed", size=6)
    await database.open()
    daemons = (
        Worker(database, known, WorkerSettings(lease=30, margin=1, slots=2, poll=0.05)),
        Reconciler(database, known, ReconcilerSettings(lease=30, interval=0.1), slots=2, margin=1),
        Sweeper(database, known),
    )
    with stop_event() as stop:
        await asyncio.gather(*(daemon.run(stop) for daemon in daemons))
    await database.close()
