"""The listening socket and its connections."""

import asyncio
import logging

from idem.testing.bank.connection import BankConnection
from idem.testing.bank.wire import RequestHandler

logger = logging.getLogger("idem.bank")

# Reconnecting workers connect all at once; the kernel's queue must hold them while the loop is busy.
_BACKLOG = 1024


class Server:
    """Listens, and closes all connections at the end."""

    def __init__(self, handler: RequestHandler, *, idle_seconds: float, max_body: int) -> None:
        self.failures: list[Exception] = []
        self._handler = handler
        self._idle_seconds = idle_seconds
        self._max_body = max_body
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], BankConnection] = {}

    @property
    def port(self) -> int:
        """The port that it listens on."""
        if self._server is None or not self._server.sockets:
            raise RuntimeError("the bank is closed")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            OSError: the address is taken.
        """
        self._server = await asyncio.start_server(self._connected, host, port, backlog=_BACKLOG)

    async def stop(self, grace: float = 1.0) -> None:
        """Stop listening, give running requests `grace` seconds to be answered, close all connections. Requests whose
        fault is to stall get no time."""
        if self._server is None:
            return
        self._server.close()
        for task, connection in self._connections.items():
            if not connection.working:
                task.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=grace)
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=grace)
        self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = BankConnection(
            self._handler, reader, writer, idle_seconds=self._idle_seconds, max_body=self._max_body
        )
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = connection
        try:
            await connection.serve()
        except (asyncio.CancelledError, ConnectionError):
            # Only `stop` cancels it. If it were raised, asyncio's own callback would report it as an error.
            pass
        except Exception as error:
            logger.exception("the bank failed on a request")
            self.failures.append(error)
            connection.reset()
        finally:
            del self._connections[task]
            writer.close()
