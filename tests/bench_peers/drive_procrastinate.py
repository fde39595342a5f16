"""procrastinate on psycopg and uvloop."""

from importlib.metadata import version

import peer
from procrastinate import App, PsycopgConnector

CONCURRENCY = 100
POOL = 32


class Procrastinate(peer.Peer):
    version = version("procrastinate")

    async def install(self) -> None:
        await self.open(1)
        await self.app.schema_manager.apply_schema_async()

    async def open(self, connections: int) -> None:
        size = max(connections, 1 if self.order["work"] == "install" else POOL)
        self.app = App(connector=PsycopgConnector(conninfo=self.url, min_size=connections, max_size=size))

        @self.app.task(name="job")
        async def job(number: int) -> None:
            await self.run.called(number)

        self.task = job
        await self.app.open_async()

    async def enqueue(self, lane: int, number: int) -> None:
        await self.task.defer_async(number=number)

    async def seed(self, count: int) -> None:
        await self.app.connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")
        for first in range(0, count, 1000):
            numbers = range(first, min(count, first + 1000))
            await self.task.batch_defer_async(*({"number": number} for number in numbers))

    async def work(self) -> None:
        if self.order["work"] == "latency":
            await self.app.connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")
        concurrency = self.order["slots"] if self.order["work"] == "http" else CONCURRENCY
        await self.app.run_worker_async(concurrency=concurrency, install_signal_handlers=False)

    async def left(self) -> int:
        found = await self.app.connector.execute_query_one_async(
            "SELECT count(*) AS n FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        )
        return int(found["n"])


if __name__ == "__main__":
    peer.main(Procrastinate)
