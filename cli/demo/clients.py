"""The clients: each requests one payment, retries with its key until it has an answer, and asks again afterwards."""

import asyncio
import hashlib
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from idem import Operation
from idem.cli.demo.client_log import ClientAct, ClientHeard, ClientLog, LogLine
from idem.cli.demo.scenario import TENANT, Manner, PlannedPayment
from idem.decisions import Accepted, Decision, Expired, InProgress, Mismatch, NeedsOperator, Replay, Retrying, Unknown
from idem.errors import IdemError

CONNECTIONS = 8
TRIES_AFTER = 2
"""How often a client asks again after its answer was final."""

WORDS: Mapping[type[Decision], ClientHeard] = {
    Accepted: "accepted",
    Retrying: "retrying",
    Replay: "replay",
    InProgress: "in_progress",
    Unknown: "unknown",
    NeedsOperator: "needs_operator",
    Mismatch: "mismatch",
    Expired: "expired",
}
"""The word for each decision in the log."""


class Clients:
    """All clients of a demo, on one small pool of connections."""

    def __init__(
        self,
        url: str,
        operations: Mapping[str, Operation[Any]],
        log: ClientLog,
        payments: Sequence[PlannedPayment],
        seed: int,
    ):
        self._engine: AsyncEngine = create_async_engine(
            url.replace("postgresql://", "postgresql+psycopg://", 1),
            pool_size=CONNECTIONS,
            max_overflow=0,
            pool_timeout=10,
            connect_args={"connect_timeout": 5, "application_name": "idem demo clients"},
        )
        self._operations = {**operations}
        self._log = log
        self._payments = payments
        self._chance = random.Random(f"idem clients {seed}")
        self._began = 0.0
        self.accepted: dict[str, str] = {}
        """The intents that clients know to be committed, by key."""
        self.answered: dict[str, str] = {}
        """The intents whose final answer was seen, by key."""
        self.said: Counter[str] = Counter()
        self.done = 0

    async def run(self) -> None:
        """Run until every client has its answer."""
        self._began = asyncio.get_running_loop().time()
        try:
            async with asyncio.TaskGroup() as group:
                for payment in self._payments:
                    group.create_task(self._client(payment))
        finally:
            await self._engine.dispose()

    @property
    def arrived(self) -> bool:
        """Whether the time for new payments is over."""
        last = self._payments[-1].at if self._payments else 0.0
        return self._began > 0 and asyncio.get_running_loop().time() > self._began + last + 1

    async def _client(self, payment: PlannedPayment) -> None:
        await asyncio.sleep(max(0.0, self._began + payment.at - asyncio.get_running_loop().time()))
        match payment.manner:
            case Manner.ROLLBACK | Manner.ABANDONED:
                await self._ask(payment, "rolled_back")
                if payment.manner is Manner.ABANDONED:
                    self.done += 1
                    return
                await asyncio.sleep(self._some(0.1, 0.5))
            case Manner.TWICE:
                await asyncio.gather(*(self._ask(payment, "twice") for _ in range(3)))
            case Manner.LEAVES:
                await self._ask_surely(payment, "pay")
                self.done += 1
                return
            case Manner.PATIENT | Manner.EARLY | Manner.OTHER_BODY:
                pass
            case _ as unlisted:
                assert_never(unlisted)
        await self._until_final(payment)
        for _ in range(TRIES_AFTER):
            await asyncio.sleep(self._some(0.5, 3.0))
            await self._ask_surely(payment, "after")
        self.done += 1

    async def _until_final(self, payment: PlannedPayment) -> None:
        tries = 0
        other = payment.manner is Manner.OTHER_BODY
        while True:
            decision = await self._ask(payment, "pay" if tries == 0 else "poll")
            if decision is not None and payment.key in self.accepted and other:
                other = False
                await self._ask(payment, "other_body", {**payment.params, "amount": 1})
            if isinstance(decision, Replay) or (isinstance(decision, NeedsOperator) and payment.needs_operator):
                return
            tries += 1
            await asyncio.sleep(self._wait(payment, decision, tries))

    def _wait(self, payment: PlannedPayment, decision: Decision | None, tries: int) -> float:
        if payment.manner is Manner.EARLY and tries <= 4:
            return self._some(0.02, 0.2)
        if tries == 1:
            return self._some(0.2, 0.8)
        asked = decision.retry_after if isinstance(decision, InProgress | Unknown) else 1.0
        return self._some(0.8, 1.2) * min(max(asked, 1.0), 2.5)

    async def _ask_surely(self, payment: PlannedPayment, asked: ClientAct) -> None:
        """Ask until the database answers."""
        while True:
            if await self._ask(payment, asked) is not None:
                return
            await asyncio.sleep(self._some(0.5, 1.5))

    async def _ask(
        self, payment: PlannedPayment, asked: ClientAct, params: Mapping[str, Any] | None = None
    ) -> Decision | None:
        """One request in one transaction. None: the database did not answer, which proves nothing."""
        decision: Decision | None = None
        committed: bool | None = False
        error: str | None = None
        try:
            async with self._engine.connect() as connection:
                operation, asked_for = self._operations[payment.operation], dict(params or payment.params)
                decision = await operation.accept_async(connection, asked_for, key=payment.key, tenant=TENANT)
                if asked == "rolled_back":
                    await connection.rollback()
                else:
                    committed = None
                    await connection.commit()
                    committed = True
        except (SQLAlchemyError, IdemError, OSError, TimeoutError) as raised:
            error = f"{type(raised).__name__}: {raised}"[:200]
        answer = decision.answer if isinstance(decision, Replay) and error is None else None
        intent = decision.intent_id if decision is not None else None
        line = LogLine(
            at=time.time(),
            key=payment.key,
            operation=payment.operation,
            asked=asked,
            said=WORDS[type(decision)] if decision is not None and error is None else "error",
            committed=committed,
            intent=str(intent) if intent is not None else None,
            status=answer.status if answer else None,
            headers=dict(answer.headers) if answer else None,
            body_sha256=hashlib.sha256(answer.body).hexdigest() if answer else None,
            note=error,
        )
        self._log.write(line)
        self.said[line.said] += 1
        if line.is_acceptance and line.intent is not None:
            self.accepted[line.key] = line.intent
            if line.said == "replay":
                self.answered[line.key] = line.intent
        return decision if error is None else None

    def _some(self, least: float, most: float) -> float:
        return self._chance.uniform(least, most)
