"""The peers of `make bench`: how each is installed and run, how much it is given, and what it does not do."""

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = HERE.parent.parent / ".bench"
"""Where their environments are."""


@dataclass(frozen=True)
class Peer:
    """A job queue on PostgreSQL. `enqueue`, `drain` and `http`: how many jobs each workload has, so that each takes a
    few seconds.
    """

    name: str
    packages: tuple[str, ...]
    driver: str
    enqueue: int
    drain: int
    http: int
    settings: str
    writes: str
    """What it writes of a job, and keeps."""
    lacks: str
    """What it does not write or guarantee, of what idem does."""

    @property
    def node(self) -> bool:
        """Whether it runs on Node.js."""
        return self.driver.endswith(".cjs")

    @property
    def folder(self) -> Path:
        """Its environment."""
        return HOME / self.name

    @property
    def command(self) -> list[str]:
        """What runs its driver."""
        return (
            ["node", str(HERE / self.driver)]
            if self.node
            else [str(self.folder / "bin" / "python"), str(HERE / self.driver)]
        )


PYTHON = ("uvloop>=0.21", "aiohttp>=3.11")

PEERS = (
    Peer(
        name="pgqueuer",
        packages=("pgqueuer>=1.6", "asyncpg", *PYTHON),
        driver="drive_pgqueuer.py",
        enqueue=4000,
        drain=20_000,
        http=3000,
        settings="asyncpg, uvloop, batch 500, 1000 in flight, pool of 8; HTTP: batch 50, 100 in flight, aiohttp",
        writes="one row a job and a log row for each status; the job's row is deleted at its end, the log stays",
        lacks="no idempotency key and no stored answer (a dedupe key holds while the job waits), no frozen request, no "
        "record of attempts with claim and token; a job whose worker died is run again, whatever it had sent",
    ),
    Peer(
        name="procrastinate",
        packages=("procrastinate>=3.10", "psycopg[binary,pool]", *PYTHON),
        driver="drive_procrastinate.py",
        enqueue=2000,
        drain=2000,
        http=1000,
        settings="psycopg, uvloop, concurrency 100, pool of 32; aiohttp",
        writes="one row a job, updated at each status and kept, and an event row for each status (triggers)",
        lacks="no idempotency key and no stored answer (a queueing lock holds while the job waits), no frozen "
        "request; a job of a dead worker stays `doing` until the user's own task retries it, whatever it had sent",
    ),
    Peer(
        name="dbos",
        packages=("dbos>=3.4", "psycopg[binary]", *PYTHON),
        driver="drive_dbos.py",
        enqueue=1500,
        drain=1500,
        http=1000,
        settings="worker concurrency 400, polling every 50 ms; aiohttp",
        writes="one row a workflow, updated at each status and kept with inputs and result; a row for each step",
        lacks="the workflow id is an idempotency key without a fingerprint of the content; a step that was cut off is "
        "run again at recovery, whatever it had sent; no look-up and no verdict about it",
    ),
    Peer(
        name="graphile-worker",
        packages=("graphile-worker@>=0.17 <1", "pg@^8"),
        driver="drive_graphile_worker.cjs",
        enqueue=3000,
        drain=40_000,
        http=4000,
        settings="concurrentJobs 100, localQueue 500, completeJobBatchDelay 0; http.Agent of 100 sockets",
        writes="one row a job, deleted at its end",
        lacks="keeps nothing of a job that has ended: no result, no history, no key (a job_key holds while the job "
        "waits); a job of a dead worker is run again after 4 hours, whatever it had sent",
    ),
    Peer(
        name="pg-boss",
        packages=("pg-boss@>=10", "pg@^8"),
        driver="drive_pg_boss.cjs",
        enqueue=3000,
        drain=40_000,
        http=4000,
        settings="its fetch and complete in 4 loops of batch 250; HTTP: 10 loops of batch 10, http.Agent of 100 "
        "sockets; pick-up: 10 workers of batch 10, polling every 0.5 s, the least that it allows",
        writes="one row a job, updated at claim and end with its output, kept for a time",
        lacks="no idempotency key and no stored answer (its singleton keys limit how many jobs wait or run), no frozen "
        "request, no record of attempts; a job that expires is run again, whatever it had sent",
    ),
)
