"""`idem run --single-process`: all daemons in one process and one event loop, without a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from idem.cli import api, daemons, opening
from idem.cli.failures import FAILED, OK
from idem.cli.output import say

if TYPE_CHECKING:
    from idem.outbox.config import Configuration
    from idem.outbox.database.address import Address
    from idem.outbox.domain.catalogue import Catalogue

At: TypeAlias = tuple[str, int] | None
"""A host and a port to listen on; None: not at all."""

POOLS: Final = ("worker", "sweeper", "reconciler")
"""Who has a pool of connections of its own, beside the API: a lock that one of them waits for holds up no other."""


def run(config: Path | None, found: Configuration, address: Address, at: At, beside: At, patience: float) -> int:
    """Run worker, sweeper and reconciler until SIGTERM, and the API at this address, if there is one; the exit code.

    `beside`: where metrics and probes are served too. A daemon that fails ends all: the others finish what runs, for
    `patience` seconds at the most, and the exit code is 1.
    """
    failed = asyncio.run(_all(config, found, address, at, beside, patience))
    if failed:
        say(f"idem: {' and '.join(failed)} failed, so everything in this process has ended; start `idem run` again")
    return FAILED if failed else OK


async def _all(
    config: Path | None, found: Configuration, address: Address, at: At, beside: At, patience: float
) -> list[str]:
    from idem.outbox.daemon.daemon import stop_on_signals
    from idem.outbox.http_server.serving import listen
    from idem.sweeper.daemon import Sweeper

    catalogue = opening.catalogue(found)
    async with contextlib.AsyncExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        # Both ports first: nothing has been claimed when one of them is taken.
        listening = None if at is None else stack.enter_context(contextlib.closing(listen(*at)))
        await stack.enter_async_context(api.probes(beside, stop, "run"))
        of = {name: await stack.enter_async_context(daemons.connected(found, address, name)) for name in POOLS}
        worker = daemons.worker_of(config, of["worker"], catalogue, found)
        sweeper = Sweeper(of["sweeper"], catalogue, found.settings.sweeper)
        reconciler = daemons.reconciler_of(of["reconciler"], catalogue, found)
        clients = None
        if listening is not None:
            clients = await stack.enter_async_context(
                daemons.connected(found, address, "api", lambda found: opening.pool(found, found.settings.api))
            )
        # From here on nothing raises before all of them run.
        running: dict[str, Coroutine[Any, Any, Any]] = {
            "worker": worker.run(stop), "sweeper": sweeper.run(stop), "reconciler": reconciler.run(stop)
        }  # fmt: skip
        if listening is not None and clients is not None:
            running["api"] = api.serve_until(
                clients, catalogue, found, listening, stop, reserved=_descriptors(found, catalogue)
            )
        return await until_the_end(running, stop, patience)


def _descriptors(found: Configuration, catalogue: Catalogue) -> int:
    from idem.outbox.http_server import descriptors

    # A call and its name look-up for each slot, the reconciler's share of them too; pools, and sessions that listen.
    # Not more than half of all: not every slot of every lane is taken at once.
    lanes = sum(len(provider.accounts) for provider in catalogue.providers.values())
    most = lanes * 3 * found.settings.worker.slots + (len(POOLS) + 1) * daemons.SIZE
    return min(most, descriptors.raise_limit() // 2)


async def until_the_end(
    running: Mapping[str, Coroutine[Any, Any, Any]], stop: asyncio.Event, patience: float
) -> list[str]:
    """Run these until `stop`, and then until they have ended; the names of those that failed.

    Failed has what raises, what ends before `stop`, and what has not ended `patience` seconds after it. The first of
    them sets `stop` for all: half of an installation looks alive, and is not.
    """
    from idem.outbox.observe import daemon_events

    failed: list[str] = []

    def fail(name: str, why: BaseException | str) -> None:
        if name not in failed:
            failed.append(name)
            daemon_events.daemon_failed(name, why)

    async def tended(name: str, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
            if not stop.is_set():
                fail(name, "it has ended, though nothing told it to stop")
        except (Exception, asyncio.CancelledError) as error:
            fail(name, error)
        finally:
            stop.set()

    tasks = {name: asyncio.create_task(tended(name, work)) for name, work in running.items()}
    await stop.wait()
    await asyncio.wait(tasks.values(), timeout=patience)
    for name, task in tasks.items():
        if not task.done():
            fail(name, f"it was told to stop and has not ended in {patience:.0f} s")
            task.cancel()
    return failed
