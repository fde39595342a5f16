"""Puts a server into the initial states of the cases.

A driver has a method for each step that it supports, with the step's name. All are optional; a case with a missing
step is reported as skipped, never as passed. `STEPS` says what each step must do.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from idem.testing.conformance.target import Target
from idem.testing.conformance.wire import Client, WireAnswer

STATES: Final = {
    "accepted": "the request was accepted and no worker processes it",
    "running": "the call to the provider is being made, under a live claim",
    "completed": "the effect exists and the answer is stored",
    "completed_empty": "the same; the stored answer is a 204 without a body",
    "completed_large": "the same; the stored answer's body has 1,048,576 bytes",
    "completed_binary": "the same; the stored body is every byte from 0 to 255, application/octet-stream, with the "
    "header x-receipt: r-1",
    "refused": "the provider has refused it and that answer is stored",
    "unknown": "the call broke after bytes may have left",
    "awaiting": "the provider has accepted and is still working",
    "must_act": "the provider has the object and waits for the customer (3-D Secure), whom the client must redirect",
    "failed_retryable": "proven not executed and at rest; a client's retry may run it",
    "needs_operator": "proven not executed or unknown, with a dead letter that only an operator can decide",
    "expired": "completed and expired: the answer is gone, the tombstone remains",
    "tombstone_gone": "the tombstone is gone too",
    "cancelled": "cancelled before anything was sent",
    "approved": "a person has approved the request, and its call is made and done",
    "rejected": "a person has rejected the request, before anything was sent",
    "settled_later": "an unknown or awaiting call is now settled as done, by a look-up or a webhook",
    "late_failure": "an unknown call is proven not executed, and at rest",
}
"""States of one key, `world.key`. Before the first steps of a case the runner has sent its opening request; for later
steps the case's own requests have made the key."""

WORLDS: Final = {
    "nobody_works": "only the steps of this case call providers while it runs",
    "database_down": "the server cannot reach its database",
    "database_back": "it can again",
    "restarted": "the server was restarted",
    "restored": "its database was dumped, dropped and restored",
    "requests_used_up": "the tenant of `world.token` has reached its request rate limit",
    "keys_used_up": "the tenant of `world.token` may not create new keys now; its `world.key` was accepted before",
    "token_revoked": "`world.token` is a token that was revoked",
    "provider_drops": "the provider acts and then drops the connection, for the next call of this key",
    "provider_fails": "the provider answers 500 after it has acted, for the next call of this key",
    "provider_cuts": "the provider acts and its answer breaks off in the middle, for the next call of this key",
    "worker_works": "time has passed, and the workers had the opportunity to call providers",
    "worker_is_killed": "a worker makes a call and is killed after the provider has acted; its lease has expired",
}
"""States of the server itself."""

STEPS: Final = STATES | WORLDS


@dataclass
class ConformanceWorld:
    """The current state of one case. A driver may put another `token` here; later requests use it."""

    target: Target
    client: Client
    token: str | None
    key: str
    operation: str = "pay"
    intent: str | None = None
    answers: dict[str, WireAnswer] = field(default_factory=dict)


class NotPossible(Exception):
    """A driver's step raises it if the step is not possible here (e.g. a tool is missing): the case is skipped, with
    this reason.
    """


class Driver(Protocol):
    """Any object. The runner also calls these three if they exist; each is optional, like every step:

    `async def effects(world) -> int`: how often the provider has really acted for this key;
    `async def rows(world) -> int`: how many intents there are for this key;
    `async def clean_up(world) -> None`: after each case, also a failed one: make the server work again.
    """


class HttpDriver:
    """The steps that are possible with any server through HTTP alone: ask, and ask again until there is an answer.

    Even `accepted` is not possible: a worker may be faster than the next request.
    """

    patience = 60.0
    """Seconds to wait for a final answer."""

    async def completed(self, world: ConformanceWorld) -> None:
        """Repeat the opening request until its answer is final."""
        until = asyncio.get_running_loop().time() + self.patience
        while (answer := await self.again(world)).status in (202, 409, 503):
            if asyncio.get_running_loop().time() > until:
                raise NotPossible(f"no final answer within {self.patience:g} s")
            await asyncio.sleep(min(1.0, float(answer.header("retry-after") or 1)))

    async def again(self, world: ConformanceWorld) -> WireAnswer:
        """Repeat the opening request once."""
        from idem.testing.conformance.requests import written

        method, path, headers, body, options = written({}, world, to=world.operation)
        return await world.client.send(method, path, headers, body, **options)


def step(driver: Any, name: str) -> Any:
    """The method of a step. Raises NotPossible if the driver has none."""
    found = getattr(driver, name, None)
    if found is None:
        raise NotPossible(f"the driver has no step {name}")
    return found
