"""After a restore that lost commits, lines that idem may have sent already are not taken over as if they were new."""

from pathlib import Path

import pytest
from fix_desk import Desk
from fix_restore import notices
from importing.lines import WHY, line, taken, written

from idem.errors import OperatorRefused
from idem.outbox.importing import takeover

FORGET = """
TRUNCATE idem.evidence, idem.events, idem.requests, idem.outbox, idem.idempotency_keys, idem.intents,
         idem.dead_letters, idem.provider_answers CASCADE
"""


async def restored(desk: Desk, how: str) -> None:
    """What was taken over and sent is lost: by an operator's word, or as a daemon notices it."""
    await desk.spine.forced(FORGET)
    if how == "a daemon notices it":
        await notices(desk.spine, timeline=99)
    else:
        assert (await desk.cli("recover", "--lost", "--reason", "restored", "--yes")).code == 0


@pytest.mark.parametrize("how", ["a person says it", "a daemon notices it"])
@pytest.mark.parametrize("state", ["queued", "failed"])
async def test_what_was_sent_after_the_backup_is_not_resent(desk: Desk, tmp_path: Path, how: str, state: str) -> None:
    assert (await taken(desk, tmp_path, line("k1", "queued"))).code == 0
    assert await desk.spine.works() == 1
    await restored(desk, how)
    again = await taken(desk, tmp_path, line("k1", state), line("k2"))
    assert again.code == 1 and "1 of the new lines are queued or failed" in again.err, again
    assert "--not-sent-before" in again.err and "nothing was written" in again.err
    looked = await taken(desk, tmp_path, line("k1", state), options=(*WHY, "--json"))
    assert looked.code == 1 and looked.data["written"] is False and "lost commits" in looked.data["refused"]
    assert await desk.spine.works() == 1
    assert await desk.spine.all("SELECT id FROM idem.intents") == []


async def test_a_word_lets_them_in_and_what_has_ended_needs_none(desk: Desk, tmp_path: Path) -> None:
    await restored(desk, "a person says it")
    ended = await taken(desk, tmp_path, line("k2"))
    assert ended.code == 0 and "imported: 1 completed" in ended.err
    done = await taken(desk, tmp_path, line("k1", "queued"), options=(*WHY, "--not-sent-before"))
    assert done.code == 0 and "imported: 1 queued" in done.err
    assert (await taken(desk, tmp_path, line("k1", "queued"))).code == 0, "what is there already is no new line"


async def test_a_move_that_lost_nothing_asks_for_no_word(desk: Desk, tmp_path: Path) -> None:
    await restored(desk, "a daemon notices it")
    assert (await desk.cli("recover", "--lossless", "--reason", "a planned move", "--yes")).code == 0
    assert (await taken(desk, tmp_path, line("k1", "queued"))).code == 0


async def test_what_is_lost_between_the_check_and_the_writing_is_refused(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "outbox.jsonl"
    file.write_text(written(line("k1", "queued")))
    async with desk.spine.database.connection() as connection:
        with file.open("rb") as lines:
            checked = await takeover.check(connection, desk.spine.catalogue, lines)
        assert checked.against is None
        assert (await desk.cli("recover", "--lost", "--reason", "restored", "--yes")).code == 0
        with (
            file.open("rb") as lines,
            pytest.raises(OperatorRefused, match="lost commits since the lines were checked"),
        ):
            await takeover.take_over(connection, desk.spine.catalogue, lines, checked=checked, by="ann", reason="moved")
    assert await desk.spine.all("SELECT id FROM idem.intents") == []
