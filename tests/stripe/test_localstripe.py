"""Against localstripe, a real server that nobody here wrote: its signed webhooks, and the bar in a short form."""

from pathlib import Path

from fix_database import ENVIRONMENT
from fix_localstripe import SETTINGS, WEBHOOK, Line, accept, environment, localstripe, pay_through_a_bad_line
from fix_sql import query
from fix_waiting import stopping, until
from fix_webhooks import free_port, serving

from idem.outbox.config import load
from idem.outbox.config.settings import WorkerSettings
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.worker.worker import Worker
from idem.testing.proxy import Proxy


async def test_a_bad_line_and_a_killed_worker_make_no_second_payment(db_url: str, tmp_path: Path) -> None:
    """It takes every request as a new one: what was sent twice would stand there twice."""
    made, line = await pay_through_a_bad_line(db_url, tmp_path, intents=24, kills=1)
    assert made == {f"order-{number}": 1 for number in range(24)}, "none was made twice, and none never"
    settled = query(
        db_url,
        "SELECT count(*) FROM idem.intents n WHERE n.state = 'completed' AND n.outcome = 'succeeded'"
        " AND NOT EXISTS (SELECT FROM idem.dead_letters d WHERE d.intent_id = n.id)",
    )
    assert settled == [(24,)]
    assert line.killed == 1 and line.cut > 0


async def test_its_signed_webhooks_settle_what_lost_its_answer(database: Database, db_url: str, tmp_path: Path) -> None:
    """Nobody looks: every answer is lost on the line, and the events alone say what happened."""
    port, line = free_port(), Line(1.0)
    async with localstripe(tmp_path) as local, Proxy(local.address, line.before, line.after) as proxy:
        file, given = tmp_path / "idem.toml", environment(db_url)
        origin = f"http://{proxy.host}:{proxy.port}"
        file.write_text(SETTINGS % {"environment": ENVIRONMENT, "origin": origin, "webhook": WEBHOOK})
        found = load(file, given)
        known = Catalogue(ENVIRONMENT, found.providers, found.operations)
        hooks = f"http://127.0.0.1:{port}/webhooks/stripe"
        await local.post("/_config/webhooks/shop", url=hooks, secret=given["STRIPE_WEBHOOK_SECRET"])
        async with serving(db_url, known, port=port):
            accept(db_url, file, await local.card(), 4)
            async with stopping(Worker(database, known, WorkerSettings(lease=30, margin=1, slots=4))) as worker:
                await worker.run_once()
            succeeded = "SELECT FROM idem.intents WHERE outcome = 'succeeded'"
            await until(lambda: len(query(db_url, succeeded)) == 4)
        assert (line.cut, len(await local.all("payment_intents"))) == (4, 4)
        assert query(db_url, "SELECT count(*) FROM idem.evidence WHERE source = 'reconciler'") == [(0,)]
        assert query(db_url, "SELECT count(*) FROM idem.webhook_events WHERE fate IN ('applied', 'stored')") == [(4,)]
