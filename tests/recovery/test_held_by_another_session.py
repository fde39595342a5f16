"""A row that another session holds keeps no other from being doubted, and is neither sent nor settled until it is.

The other session is a client whose transaction stays open, or a person's psql.
"""

from contextlib import suppress
from uuid import UUID

import psycopg
import pytest
from fix_desk import Desk
from fix_restore import lossless, notices
from fix_sql import engine_of, query
from fix_steps import claim_due, settle

from idem.decisions import InProgress
from idem.errors import OperatorRefused
from idem.outbox.domain.outcomes import Seen
from idem.outbox.operator import actions
from idem.outbox.recovery import release
from idem.outbox.recovery.quarantine import work_off
from idem.outbox.settle import doubted_rows, results
from idem.outbox.worker import claim as claims
from idem.outcomes import NotExecuted, Succeeded

HOLDS = {
    "the row": "SELECT FROM idem.outbox WHERE intent_id = %(i)s FOR UPDATE",
    "its key": "SELECT FROM idem.idempotency_keys WHERE intent_id = %(i)s FOR UPDATE",
    "its intent": "SELECT FROM idem.intents WHERE id = %(i)s FOR UPDATE",
    "its entry": "SELECT FROM idem.dead_letters WHERE intent_id = %(i)s FOR UPDATE",
}


RESOLVED = "UPDATE idem.dead_letters SET resolved_at = now(), resolution = 'x', resolved_by = 'x'"


async def recovered(desk: Desk, by: str) -> dict[str, int]:
    """Commits were lost: a daemon notices it, or an operator says so. What was found."""
    if by == "an operator":
        done = await desk.cli("recover", "--lost", "--reason", "restored", "--yes", "--json")
        assert done.code == 0, done.err
        return {name: done.data[name] for name in ("rows", "left", "open", "waiting")}
    await notices(desk.spine, system_identifier=1)
    return {}


async def listed(desk: Desk) -> set[UUID]:
    return {row["intent_id"] for row in await desk.spine.all(
        "SELECT o.intent_id FROM idem.doubts d JOIN idem.outbox o ON o.id = d.outbox_id")}  # fmt: skip


async def statuses(desk: Desk, *intents: UUID) -> list[str]:
    return [await desk.spine.status(intent) for intent in intents]


@pytest.mark.parametrize("by", ["a daemon", "an operator"])
@pytest.mark.parametrize("held", HOLDS)
async def test_all_others_are_doubted_and_the_held_row_is_not_sent(desk: Desk, held: str, by: str) -> None:
    first, last = desk.spine.accepted("a", operation="pay.keyless"), desk.spine.accepted("z", operation="pay.keyless")
    intent = desk.spine.accepted("b", operation="pay.keyless")
    await desk.bury(intent, "too_late")
    with psycopg.connect(desk.spine.url) as other:
        assert other.execute(HOLDS[held], {"i": intent}).rowcount == 1
        found = await recovered(desk, by)
        assert not found or found == {"rows": 2, "left": 0, "open": 0, "waiting": 1}
        assert await statuses(desk, first, last, intent) == ["unknown", "unknown", "pending"]
        assert await listed(desk) == {intent}
        await desk.spine.work()
        await desk.spine.sweep()
        assert await statuses(desk, intent) == ["pending"]
    assert (await desk.spine.work()).claimed == 0, "let go, and not doubted yet"
    assert desk.spine.effects() == 0
    await desk.spine.sweep()
    assert await statuses(desk, intent) == ["unknown"] and await listed(desk) == set()
    assert (await desk.spine.row(intent))["doubted_since"] is not None
    assert await desk.spine.works() == 0


async def test_what_may_be_sent_is_sent_once_it_is_doubted(desk: Desk) -> None:
    intent = desk.spine.accepted("b", operation="pay.keyed")
    with psycopg.connect(desk.spine.url) as other:
        other.execute(HOLDS["the row"], {"i": intent})
        await recovered(desk, "an operator")
    assert (await desk.spine.work()).claimed == 0
    await desk.spine.sweep()
    assert (await desk.spine.work()).claimed == 1 and desk.spine.effects() == 1


@pytest.mark.parametrize("what", ["at rest", "unknown", "claimed"])
async def test_nobody_settles_or_takes_a_row_that_is_still_to_be_doubted(desk: Desk, what: str) -> None:
    """Its client, the reconciler, an operator, and whoever holds its claim: each leaves it, and goes on afterwards."""
    claimed = None
    if what == "at rest":
        intent = await desk.held("b")
    elif what == "unknown":
        intent = await desk.unknown("b")
    else:
        intent, claimed = await desk.pending("b"), await desk.claim()
    with psycopg.connect(desk.spine.url) as other:
        other.execute(HOLDS["the row"], {"i": intent})
        await recovered(desk, "an operator")
    before = await desk.spine.one("SELECT * FROM idem.outbox")
    if what == "at rest":
        await desk.spine.execute(RESOLVED)
        assert isinstance(desk.spine.accept("b"), InProgress)
    assert await claim_due(desk.spine, limit=5) == []
    async with desk.spine.database.connection() as connection:
        for command in (actions.cancel, actions.redrive):
            with pytest.raises(OperatorRefused, match="recovery has not yet handled this row"):
                await command(connection, desk.spine.catalogue, intent, by="ann", reason="r", version=None)
        if claimed is not None:
            assert not await claims.mark_start(connection, claimed.row, needed=0)
    if claimed is not None:
        terms = desk.spine.catalogue.terms("pay.keyed", "keyed")
        assert terms is not None
        with pytest.raises(results.RowIsLocked):
            await settle(desk.spine, results.Report(claimed.row, NotExecuted("request"), Seen(400), terms))
    assert await desk.spine.one("SELECT * FROM idem.outbox") == before
    await desk.spine.sweep()
    assert (await desk.spine.row(intent) or {})["doubted_since"] is not None and await listed(desk) == set()
    if claimed is not None:
        await desk.settle(claimed, Succeeded("pay_1", "succeeded"))
        assert (await desk.spine.key(intent))["state"] == "completed"


async def test_a_retry_with_an_older_view_of_the_database_does_not_escape(desk: Desk) -> None:
    """The client's transaction began before the word: it takes its row up, and nobody sends it undoubted."""
    intent = await desk.held("b")
    await desk.spine.execute(RESOLVED)
    with engine_of(desk.spine.url).connect().execution_options(isolation_level="REPEATABLE READ") as c:
        c.exec_driver_sql("SELECT 1 FROM idem.outbox").all()
        assert await desk.spine.run(doubted_rows.list_open, "restored") == 1
        desk.spine.acceptor.accept(c, "t", "pay.keyed", "b", {"amount": 100})
        c.commit()
    assert await statuses(desk, intent) == ["pending"], "it was taken up"
    assert (await desk.spine.work()).claimed == 0
    await desk.spine.sweep()
    row = await desk.spine.row(intent) or {}
    assert row["doubted_since"] is not None and row["status"] == "pending"


async def test_a_claim_that_was_under_way_while_the_rows_were_listed_is_doubted_as_a_claim(desk: Desk) -> None:
    """A walk over one status after the other would have missed it in both."""
    intent = desk.spine.accepted("a", operation="pay.keyless")
    async with desk.spine.database.connection() as connection:
        await doubted_rows.list_open(connection, "restored")
        # What the statement of a claim does that began before.
        await connection.execute(
            "UPDATE idem.outbox SET status = 'claimed', attempt = 1, claim_token = gen_random_uuid(), claimed_by = 'w',"
            " claimed_at = now(), claimed_until = now() + interval '1 min', first_sent_at = now()"
        )
        assert (await work_off(connection, desk.spine.catalogue)).open == 1
    row = await desk.spine.row(intent) or {}
    assert row["status"] == "claimed" and row["claim_token"] is not None
    assert row["doubted_since"] < row["first_sent_at"] and row["quiet_after"] is not None


async def test_a_row_that_has_left_meanwhile_leaves_the_list(desk: Desk) -> None:
    async with desk.spine.database.connection() as connection:
        await connection.execute("INSERT INTO idem.doubts (outbox_id, details) VALUES (gen_random_uuid(), '{}')")
        found = await work_off(connection, desk.spine.catalogue)
    assert found.unknown + found.left + found.open + found.waiting == 0
    assert await desk.spine.all("SELECT FROM idem.doubts") == []


async def test_that_nothing_was_lost_takes_back_what_is_only_listed(desk: Desk) -> None:
    intent, other_intent = desk.spine.accepted("a", operation="pay.keyless"), desk.spine.accepted("b")
    with psycopg.connect(desk.spine.url) as other:
        other.execute(HOLDS["the row"], {"i": intent})
        await recovered(desk, "a daemon")
        done = await desk.cli("recover", "--lossless", "--reason", "a planned move", "--yes", "--json")
        assert (done.code, done.data["waiting"]) == (0, 0), "the held one was never doubted"
        assert await listed(desk) == set()
    assert await statuses(desk, intent, other_intent) == ["pending", "pending"]
    assert await desk.spine.works() == 2


async def test_a_held_row_keeps_its_doubt_until_the_command_is_run_again(desk: Desk) -> None:
    intent = desk.spine.accepted("a")
    await recovered(desk, "a daemon")
    with psycopg.connect(desk.spine.url) as other:
        other.execute(HOLDS["the row"], {"i": intent})
        done = await desk.cli("recover", "--lossless", "--reason", "a planned move", "--yes")
        assert done.code == 0 and "1 row stays doubted" in done.err
    assert (await desk.spine.row(intent))["doubted_since"] is not None
    assert await lossless(desk.spine) == release.Released(0, 0)
    assert (await desk.spine.row(intent))["doubted_since"] is None


async def test_one_row_that_cannot_be_doubted_keeps_no_other(desk: Desk) -> None:
    """A row that is broken (here: by a trigger of another hand) stays listed, and is not sent."""
    intents = [desk.spine.accepted(key, operation="pay.keyless") for key in "abc"]
    query(
        desk.spine.url,
        "CREATE FUNCTION public.no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';"
        f"CREATE TRIGGER no BEFORE UPDATE ON idem.outbox FOR EACH ROW WHEN (NEW.intent_id = '{intents[1]}')"
        " EXECUTE FUNCTION public.no()",
    )
    await recovered(desk, "an operator")
    assert await statuses(desk, *intents) == ["unknown", "pending", "unknown"]
    with suppress(psycopg.Error):
        await desk.spine.work()
    assert desk.spine.effects() == 0 and await listed(desk) == {intents[1]}
    query(desk.spine.url, "DROP FUNCTION public.no() CASCADE")
    await desk.spine.sweep()
    assert await statuses(desk, intents[1]) == ["unknown"]
