"""How long a wait on a database line may last."""

from idem.outbox.database import session
from idem.outbox.database.bounded import BoundedConnection


async def test_an_end_that_is_near_outlives_a_shorter_bound(db_url: str) -> None:
    """A process that is told to end inside a bounded wait waits no longer than its grace afterwards either."""
    async with await session.connect(db_url, name="test") as line:
        assert isinstance(line, BoundedConnection)
        with line.bounded(5):
            line.hasten(1)
            await line.execute("SELECT 1")
        assert line.silence == 1
        await line.execute("SELECT 1")
