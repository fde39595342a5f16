"""pgqueuer on asyncpg and uvloop."""

from importlib.metadata import version
from typing import Any

import asyncpg
import peer
from pgqueuer import PgQueuer
from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

BATCH = {"drain": 500, "http": 50, "latency": 100}
IN_FLIGHT = {"drain": 1000, "http": 100, "latency": 200}
POOL = 8


class Pgqueuer(peer.Peer):
    version = version("pgqueuer")

    async def install(self) -> None:
        await Queries(AsyncpgDriver(await asyncpg.connect(self.url))).install()

    async def open(self, connections: int) -> None:
        self.lanes = [Queries(AsyncpgDriver(await asyncpg.connect(self.url))) for _ in range(connections)]
        self.pool: Any = await asyncpg.create_pool(self.url, min_size=POOL, max_size=POOL)

    async def enqueue(self, lane: int, number: int) -> None:
        await self.lanes[lane].enqueue("job", b"%d" % number)

    async def seed(self, count: int) -> None:
        await self.pool.execute("TRUNCATE pgqueuer")
        for first in range(0, count, 1000):
            size = min(1000, count - first)
            payloads: list[bytes | None] = [b"%d" % number for number in range(first, first + size)]
            await self.lanes[0].enqueue(["job"] * size, payloads, [0] * size)

    async def work(self) -> None:
        queuer = PgQueuer(AsyncpgPoolDriver(self.pool))
        if self.order["work"] == "latency":
            await self.pool.execute("TRUNCATE pgqueuer")

        @queuer.entrypoint("job")
        async def job(found: Any) -> None:
            await self.run.called(int(found.payload))

        work = self.order["work"]
        await queuer.run(batch_size=BATCH[work], max_concurrent_tasks=IN_FLIGHT[work])

    async def left(self) -> int:
        return int(await self.pool.fetchval("SELECT count(*) FROM pgqueuer"))


if __name__ == "__main__":
    peer.main(Pgqueuer)
