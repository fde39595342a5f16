"""dbos: workflows on a queue."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import peer
import psycopg
from dbos import DBOS, DBOSClient

CONCURRENCY = {"drain": 400, "http": 100, "latency": 100}
POLLING = 0.05
QUEUE = "jobs"


class Dbos(peer.Peer):
    version = version("dbos")

    async def install(self) -> None:
        await asyncio.to_thread(self._launch)

    async def open(self, connections: int) -> None:
        self.client = DBOSClient(system_database_url=self.url)
        self.threads = ThreadPoolExecutor(max(connections, 16))
        self.looking = await psycopg.AsyncConnection.connect(self.url, autocommit=True)

    async def enqueue(self, lane: int, number: int) -> None:
        options = {"queue_name": QUEUE, "workflow_name": "job"}
        await asyncio.get_running_loop().run_in_executor(self.threads, self.client.enqueue, options, number)

    async def seed(self, count: int) -> None:
        await self.looking.execute("TRUNCATE dbos.workflow_status CASCADE")
        for first in range(0, count, 500):
            await asyncio.gather(*(self.enqueue(0, number) for number in range(first, min(count, first + 500))))

    async def work(self) -> None:
        if self.order["work"] == "latency":
            await self.looking.execute("TRUNCATE dbos.workflow_status CASCADE")
        await asyncio.to_thread(self._launch)
        await asyncio.Event().wait()

    async def left(self) -> int:
        found = await self.looking.execute(
            "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING', 'DELAYED')"
        )
        row = await found.fetchone()
        assert row is not None
        return int(row[0])

    def _launch(self) -> None:
        DBOS(config={"name": "bench", "system_database_url": self.url, "run_admin_server": False, "log_level": "ERROR"})

        @DBOS.workflow(name="job")
        async def job(number: int) -> None:
            await self.run.called(number)

        DBOS.launch()
        concurrency = CONCURRENCY.get(self.order["work"], 1)
        DBOS.register_queue(QUEUE, worker_concurrency=concurrency, polling_interval_sec=POLLING)


if __name__ == "__main__":
    peer.main(Dbos)
