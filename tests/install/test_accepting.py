"""An application that only accepts needs the library and its own driver, and nothing of the daemons."""

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from install.environments import Environment

SHOP = Path(__file__).parent / "shop.py"


@pytest.mark.parametrize(
    ("needs", "driver", "way"),
    [("asyncpg", "asyncpg", "async"), ("psycopg[binary]", "psycopg", "async"), ("psycopg[binary]", "psycopg", "sync")],
)
def test_an_accept_over_each_driver_where_the_other_is_not_installed(
    beside: Callable[..., Environment], db_url: str, needs: str, driver: str, way: str
) -> None:
    """The hint to the workers goes out by the driver that is there."""
    with psycopg.connect(db_url, autocommit=True) as other:
        other.execute("LISTEN idem_outbox")
        done = beside(needs).run(SHOP, db_url, driver, way, IDEM_DATABASE_URL=db_url)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"told": [202, "Accepted"], "there": [driver]}
        rows = other.execute("SELECT status, i.operation FROM idem.outbox JOIN idem.intents i ON i.id = intent_id")
        assert rows.fetchall() == [("pending", "payments.create")] * 2
        assert list(other.notifies(timeout=10, stop_after=1))


def test_without_a_driver_for_hints_nothing_is_raised(base: Environment) -> None:
    done = base.run(
        "-c",
        "import threading, time; from idem.outbox.database.notify import Nudge\n"
        "nudge = Nudge('postgresql://nobody@localhost:1/none'); nudge.wake(); time.sleep(0.2)\n"
        "assert [t.name for t in threading.enumerate()] == ['MainThread', 'idem-nudge']; nudge.close()",
    )
    assert (done.returncode, done.stderr) == (0, "")
