"""`idem recover --lost` says how many rows it will doubt before it asks, and changes nothing until it hears yes."""

import psycopg
from fix_desk import Desk


async def one_of_each(desk: Desk) -> None:
    await desk.held("rests")
    await desk.unknown("unknown", quiet=False)
    await desk.awaiting("awaited")
    await desk.live("claimed")
    desk.spine.accepted("a", operation="pay.keyless")
    desk.spine.accepted("b", operation="pay.keyless")
    desk.spine.accepted("c", operation="pay.keyed")


async def everything(desk: Desk) -> list[dict[str, object]]:
    return [
        *await desk.spine.all("SELECT * FROM idem.outbox ORDER BY id"),
        *await desk.spine.all("SELECT * FROM idem.installation"),
        *await desk.spine.all("SELECT * FROM idem.doubts"),
        *await desk.spine.all("SELECT id FROM idem.evidence ORDER BY id"),
    ]


async def test_the_counts_come_before_the_question_and_no_changes_nothing(desk: Desk) -> None:
    await one_of_each(desk)
    before = await everything(desk)
    with psycopg.connect(desk.spine.url) as other:
        other.execute("SELECT FROM idem.outbox FOR UPDATE")
        done = await desk.cli("recover", "--lost", "--reason", "restored", answer="n\n")
        other.rollback()
    assert done.code != 0 and "nothing was changed" in done.err
    counted, _, _ = done.err.partition("[y/N]")
    said = "2 rows will become unknown", "2 rows will not change", "the last until", "3 rows are already claimed"
    assert all(words in counted for words in said), done.err
    assert await everything(desk) == before


async def test_what_was_counted_is_what_is_done(desk: Desk) -> None:
    await one_of_each(desk)
    asked = await desk.cli("recover", "--lost", "--reason", "restored", "--json", answer="y\n")
    assert asked.code == 0, asked.err
    assert "2 rows will become unknown" in asked.err and "2 rows will not change" in asked.err
    assert [asked.data[name] for name in ("rows", "left", "open", "waiting")] == [2, 2, 3, 0]


async def test_nothing_is_counted_where_nobody_is_asked(desk: Desk) -> None:
    await one_of_each(desk)
    done = await desk.cli("recover", "--lost", "--reason", "restored", "--yes")
    assert done.code == 0 and "will become" not in done.err
