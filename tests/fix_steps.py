"""Steps of the daemons on a spine: claim, report, prove, settle; and a daemon that runs beside the test."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

from fix_spine import Spine
from fix_waiting import running, stopping

from idem.outbox.config.settings import ReconcilerSettings, WorkerSettings
from idem.outbox.database.pool import Database, Timeouts
from idem.outbox.domain.lane_scopes import LaneScope, lane_scopes
from idem.outbox.domain.operation import Answer
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.outcomes import Outcome, Pending, Proof, Refused, Seen, Succeeded, name
from idem.outbox.domain.transition import Evidence
from idem.outbox.settle import proofs, results
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.settle.report import Report
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.outbox.worker.claim import Claim
from idem.outbox.worker.worker import Worker
from idem.reconciler import asker, due, settling
from idem.reconciler.daemon import Reconciler
from idem.reconciler.lookup_claim import LookupClaim


def lane(spine: Spine, kind: str = "keyed", account: str | None = None) -> LaneScope:
    """The lane of the account of this kind."""
    return lane_scopes(spine.catalogue)[kind, account or kind][0]


async def claim(
    spine: Spine, kind: str = "keyed", *, account: str | None = None, limit: int = 1, lease: float = 30, **more: Any
) -> list[Claim]:  # fmt: skip
    """Claim rows like a worker, and do nothing with them."""
    return await spine.run(
        claims.claim, lane(spine, kind, account), token=uuid4(), holder="worker-1", lease=lease, limit=limit,
        now=clock.boottime(), **more,
    )  # fmt: skip


async def claim_one(spine: Spine, kind: str = "keyed", lease: float = 30) -> Claim:
    (row,) = await claim(spine, kind, lease=lease)
    return row


async def claim_due(spine: Spine, kind: str = "keyed", limit: int = 10, **more: Any) -> list[LookupClaim]:
    """Claim rows like a reconciler, and do nothing with them."""
    return await spine.run(
        due.claim_due, lane(spine, kind), spine.catalogue.providers[kind].contract, token=uuid4(), holder="t", lease=30,
        limit=limit, **{"now": clock.boottime(), **more},
    )  # fmt: skip


async def claim_due_row(spine: Spine, kind: str = "keyed", **more: Any) -> LookupClaim:
    (taken,) = await claim_due(spine, kind, 1, **more)
    return taken


async def answered(
    spine: Spine, taken: LookupClaim, look: Any, seen: Seen | None = None, how: Any = "lookup"
) -> str:  # fmt: skip
    """Settle a reconciler's claim as if the provider had given this answer."""
    found = asker.Answered(how, look, seen or Seen(200), sent=False)
    terms = spine.catalogue.require(taken.row.operation)
    became, _ = await settling.settle(spine.database, Renderer(), taken, found, terms)
    return became


def report(spine: Spine, claimed: Claim, outcome: Outcome, kind: str = "keyed", status: int | None = 200) -> Report:
    """A worker's report about its claim."""
    answer = Answer(201, b'{"worker": true}') if isinstance(outcome, Succeeded | Refused) else None
    return Report(claimed.row, outcome, Seen(status), spine.catalogue.require(f"pay.{kind}"), answer)


async def settle(spine: Spine, *reports: Report) -> dict[UUID, results.ResultFate]:
    return await spine.run(results.settle, reports)


async def prove(
    spine: Spine, row: UUID, proof: Proof, kind: str = "keyed", *, source: str = "webhook", wait: bool = True
) -> str:
    """Apply this proof to a row; returns what became of it."""
    status = 201 if isinstance(proof, Succeeded) else 402
    answer = None if isinstance(proof, Pending) else Answer(status, b'{"proof": true}')
    found = StoredProof(uuid4(), source, proof, answer)
    evidence = Evidence(source, "webhook", name(proof), reference=proof.reference)
    return await spine.run(proofs.apply, row, found, evidence, spine.catalogue.require(f"pay.{kind}"), wait=wait)


@contextlib.asynccontextmanager
async def working(
    spine: Spine, kind: str = "worker", url: str | None = None, **settings: float
) -> AsyncIterator[tuple[Any, Any]]:
    """A worker or reconciler on its own connections that runs in this loop, and the event that stops it."""
    database = Database(url or spine.url, name="idem-test-daemon", size=4, timeouts=Timeouts(statement=3, connect=2))
    async with stopping(database):
        await database.open()
        daemon: Worker | Reconciler = Worker(
            database, spine.catalogue, WorkerSettings(**{"lease": 30, "margin": 1, "slots": 4, "poll": 0.1, **settings})
        )
        if kind == "reconciler":
            daemon = Reconciler(
                database, spine.catalogue, ReconcilerSettings(lease=30, interval=0.1), slots=4, margin=1
            )
        async with running(daemon) as stop:
            yield daemon, stop
