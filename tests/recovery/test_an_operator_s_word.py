"""`idem recover` before the daemons start, where the runbook has it: none of them judges the change again."""

from datetime import UTC, datetime, timedelta

import pytest
from fix_desk import Desk
from fix_restore import FAR, lossless, notices

from idem.outbox.recovery import release


async def another_database(desk: Desk) -> None:
    await desk.spine.execute("UPDATE idem.installation SET system_identifier = 1")


async def statuses(desk: Desk) -> list[str]:
    return [row["status"] for row in await desk.spine.all("SELECT status FROM idem.outbox ORDER BY id")]


async def test_lossless_before_the_daemons_start_leaves_the_queue_alone(desk: Desk) -> None:
    desk.spine.accepted(operation="pay.keyless")
    await another_database(desk)
    done = await desk.cli("recover", "--lossless", "--reason", "a planned move", "--yes", "--json")
    assert (done.code, done.data["became"]) == (0, "as before"), done
    await notices(desk.spine)
    await notices(desk.spine, moved=FAR)
    assert await statuses(desk) == ["pending"]
    assert await desk.spine.all("SELECT FROM idem.evidence WHERE kind LIKE 'database%%'") == []


async def test_a_word_that_a_daemon_knew_says_nothing_about_what_went_back_later(desk: Desk) -> None:
    """`recover` was said, a daemon worked on, then the database was put back: what the daemon remembers counts."""
    desk.spine.accepted(operation="pay.keyless")
    await desk.cli("recover", "--lossless", "--reason", "a planned move", "--yes")
    known = (await desk.spine.one("SELECT recovered_at FROM idem.installation"))["recovered_at"]
    await notices(desk.spine, moved=FAR, word=known)
    assert await statuses(desk) == ["unknown"]


async def test_lost_says_what_was_left_and_until_when_and_no_daemon_does_it_again(desk: Desk) -> None:
    desk.spine.accepted("a", operation="pay.keyless")
    desk.spine.accepted("b", operation="pay.keyed")
    await another_database(desk)
    asked = await desk.cli("recover", "--lost", "--reason", "restored")
    assert asked.code == 1 and "1 row will become unknown" in asked.err and "1 row will not change" in asked.err
    found = (await desk.cli("recover", "--lost", "--reason", "restored", "--yes", "--json")).data
    assert (found["rows"], found["became"], found["left"], found["open"]) == (1, "unknown", 1, 0)
    until = datetime.fromisoformat(found["left_until"])
    assert timedelta(hours=23) < until - datetime.now(UTC) < timedelta(hours=24)
    desk.spine.accepted("c", operation="pay.keyless")
    await notices(desk.spine)
    await notices(desk.spine, moved=FAR)
    assert await statuses(desk) == ["unknown", "pending", "pending"], "what was accepted since is not doubted"
    again = await desk.cli("recover", "--lost", "--reason", "again", "--yes")
    assert "1 row is unchanged" in again.err and "the last until" in again.err


async def test_lossless_takes_back_what_daemons_doubted_and_not_what_lost_has_said(desk: Desk) -> None:
    desk.spine.accepted("a", operation="pay.keyless")
    desk.spine.accepted("b", operation="pay.keyed")
    await desk.cli("recover", "--lost", "--reason", "restored", "--yes")
    desk.spine.accepted("c", operation="pay.keyless")
    desk.spine.accepted("d", operation="pay.keyed")
    await notices(desk.spine, system_identifier=1)
    assert await statuses(desk) == ["unknown", "pending", "unknown", "pending"]
    assert await lossless(desk.spine) == release.Released(rows=1, waiting=0)
    assert await statuses(desk) == ["unknown", "pending", "pending", "pending"]
    doubted = await desk.spine.all("SELECT doubted_since IS NOT NULL AS doubted FROM idem.outbox ORDER BY id")
    assert [row["doubted"] for row in doubted] == [True, True, False, False]


@pytest.mark.parametrize("by", ["its last moment", "another change"])
async def test_what_lost_has_left_to_be_sent_is_not_taken_back_once_it_is_unknown(desk: Desk, by: str) -> None:
    """It is sent after the provider has forgotten its key, if a word about a later change takes it back."""
    intent = desk.spine.accepted("a", operation="pay.keyed")
    await desk.cli("recover", "--lost", "--reason", "restored", "--yes")
    assert await statuses(desk) == ["pending"]
    await desk.spine.advance(86400)
    if by == "its last moment":
        await desk.spine.sweep()
    await notices(desk.spine, system_identifier=1)
    assert await statuses(desk) == ["unknown"]
    desk.spine.accepted("c", operation="pay.keyless")
    await notices(desk.spine, system_identifier=1)
    assert (await lossless(desk.spine)).rows == 1, "only what was doubted for the first time since"
    assert await statuses(desk) == ["unknown", "pending"]
    row = await desk.spine.row(intent)
    assert row is not None and row["doubted_since"] is not None
    await desk.spine.work()
    assert [send.key for send in desk.spine.bank.log.sends() if send.key == str(row["provider_key"])] == []
