"""Runs the bank as a separate process."""

import asyncio
import signal
from collections.abc import Callable

from idem.testing.bank.bank import Bank
from idem.testing.bank.settings import BankSettings


def run(settings: BankSettings, ready: Callable[[str], None] | None = None) -> None:
    """Run a bank until SIGTERM, SIGINT or SIGHUP; `ready` gets its URL once it listens.

    Raises:
        LogInUse, LogCorrupt, OSError: the log or the port cannot be used.
    """
    asyncio.run(_run(settings, ready))


async def _run(settings: BankSettings, ready: Callable[[str], None] | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # nohup means that the bank must survive the end of the terminal.
    hung_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    for number in (signal.SIGTERM, signal.SIGINT, *hung_up):
        loop.add_signal_handler(number, stop.set)
    async with Bank(settings) as bank:
        if ready is not None:
            ready(bank.url)
        await stop.wait()
