"""Tables fit into the terminal at every width: no word and no id is cut, and what a person reads can be typed."""

import asyncio
import os
import random
import re
from typing import Any
from uuid import UUID, uuid4

import pytest
from fix_desk import Desk
from fix_terminal import on_a_terminal

from idem.cli.base.tables import NARROW, lines, paragraph
from idem.outbox.operator.id_prefixes import Prefix

WIDTHS = (80, 120, 160)
WORDS = ("a", "provider", "pay.keyed", "unknown", "reconcile_exhausted", "12m 5s", "it is already proven not executed")


def cell(chance: random.Random) -> object:
    return chance.choice((None, 7, uuid4(), chance.choice(WORDS), " ".join(chance.choices(WORDS, k=6))))


@pytest.mark.parametrize("seed", range(int(os.environ.get("IDEM_TABLE_SEEDS", "60"))))
def test_no_line_is_longer_and_no_word_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    columns = [f"column {i}" for i in range(chance.randint(1, 11))]
    rows = [[cell(chance) for _ in columns] for _ in range(chance.randint(1, 5))]
    known = {word for row in rows for each in row for word in str(each).split()} | {"-", "column"}
    known |= {str(i) for i in range(12)}
    for width in (40, 79, *WIDTHS, 400):
        for line in lines(columns, rows, width):
            assert len(line) <= width, (width, line)
            for word in line.split():
                assert word in known or any(str(each).startswith(word) for each in known), (width, word)


def test_columns_go_away_in_their_order_and_empty_ones_first() -> None:
    row = [UUID(int=1), "x" * 30, None, "y" * 30, "z" * 30]
    head = lines(["id", "first", "empty", "second", "third"], [row], 90, drop=("second",))[0]
    assert "empty" not in head and "second" not in head and "first" in head and "third" in head


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_column_that_is_too_wide_takes_no_narrow_one_with_it(width: int) -> None:
    """Each column that would fit beside those that are shown is shown."""
    columns, wide = ["id", "key", "state", "age", "tenant"], "k" * 70
    shown = lines(columns, [[UUID(int=1), wide, "unknown", "12m 5s", "acme"]], width, drop=("age", "tenant", "key"))
    for value in ("unknown", "12m 5s", "acme"):
        assert value in shown[-1]
    assert (wide in shown[-1]) == (width == 120)


def test_below_80_each_item_is_one_line() -> None:
    rows = [[uuid4(), "reconcile_exhausted", "5m", "keyed", "pay.keyed", "unknown"] for _ in range(3)]
    shown = lines(["id", "reason", "age", "provider", "operation", "state"], rows, NARROW - 20)
    assert len(shown) == 3 and all("reconcile_exhausted" in line for line in shown)


def test_ids_are_as_short_as_tells_them_apart() -> None:
    ids = [UUID(f"01a224bf-6573-70ee-8000-{i:012x}") for i in range(2)]
    shown = lines(["id"], [[each] for each in ids], 80)
    assert shown[1:] == [str(each) for each in ids]
    other = UUID("01a224bf-7573-70ee-8000-000000000000")
    assert lines(["id"], [[ids[0]], [other]], 80)[1:] == ["01a224bf-6573", "01a224bf-7573"]


def test_a_long_word_of_a_paragraph_is_broken_only_where_the_line_ends() -> None:
    made = paragraph("details  ", "a " + "x" * 200, 80)
    assert all(len(line) <= 80 for line in made) and "".join(made).count("x") == 200


@pytest.mark.parametrize("text", ["01a", "xyz1", "01a2-zz", "0" * 33, ""])
def test_what_is_no_beginning_of_an_id_is_a_usage_error(text: str) -> None:
    with pytest.raises(ValueError, match="id"):
        Prefix.parse(text)


async def screen(desk: Desk, width: int, *arguments: str) -> str:
    """What a command draws on a real terminal of this width."""
    shown, code = await asyncio.to_thread(on_a_terminal, arguments, desk.environment, width)
    assert code == 0, shown
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).replace("\r\n", "\n")


async def busy(desk: Desk) -> tuple[UUID, UUID]:
    intent = await desk.unknown("a-long-idempotency-key-of-somebody-5c1f2f6c")
    letter = await desk.bury(intent, "reconcile_exhausted")
    await desk.held("k")
    return intent, letter


@pytest.mark.process
@pytest.mark.parametrize("width", [70, *WIDTHS])
async def test_every_command_that_prints_a_table_fits(desk: Desk, width: int) -> None:
    intent, letter = await busy(desk)
    await desk.cli("token", "create", "t", "--label", "shop")
    for arguments in (
        ("status",), ("dlq", "list"), ("dlq", "show", str(letter)), ("intents", "list"),
        ("intents", "show", str(intent)), ("unknowns", "list"), ("token", "list"), ("tenants", "top"),
    ):  # fmt: skip
        shown = await screen(desk, width, *arguments)
        if "--help" in shown:
            continue
        for line in shown.split("\n"):
            assert len(line) <= width, (arguments, line)


@pytest.mark.process
async def test_a_timeline_says_who_saw_what_before_it_says_the_details(desk: Desk) -> None:
    intent = await desk.unknown("k")
    for width in WIDTHS:
        shown = await screen(desk, width, "intents", "show", str(intent))
        (line,) = [each for each in shown.split("\n") if "→ unknown" in each and "worker" in each]
        assert "ambiguous" in line, (width, line)
    held = await desk.held("h")
    await desk.cli("intents", "cancel", held, "--reason", "why they did not want it any more", "--yes", code=0)
    for width, whole in ((80, False), (200, True)):
        desk.environment["COLUMNS"] = str(width)
        result = await desk.cli("intents", "show", held)
        assert ('"reason"' in result.out) is whole, result.out
        assert ("the details of each line" in result.err) is not whole


async def test_a_width_that_the_environment_says_counts_where_there_is_no_terminal(desk: Desk) -> None:
    intent, _ = await busy(desk)
    for width in WIDTHS:
        desk.environment["COLUMNS"] = str(width)
        for arguments in (("dlq", "list"), ("intents", "list"), ("status",), ("intents", "show", str(intent))):
            for line in (await desk.cli(*arguments)).out.split("\n"):
                assert len(line) <= width, (width, arguments, line)
    for nothing in ("", "wide", "-80"):
        desk.environment["COLUMNS"] = nothing
        assert str(intent) in (await desk.cli("intents", "list")).out, "whole where no width is known"


@pytest.mark.process
async def test_what_is_shown_can_be_typed_into_every_command(desk: Desk) -> None:
    _, letter = await busy(desk)
    shown = await screen(desk, 80, "dlq", "list")
    short = next(word for word in shown.split() if str(letter).startswith(word) and len(word) >= 8)
    assert len(short) < 36
    assert (await desk.cli("dlq", "show", short, "--json")).data["dead_letter"]["id"] == str(letter)
    assert (await desk.cli("dlq", "list", "--after", short)).code == 0
    done = await desk.cli("dlq", "redrive", short, "--reason", "r", "--yes", "--json")
    assert done.data["dead_letter"] == str(letter)


async def test_a_beginning_of_several_ids_names_them_and_one_of_none_says_so(desk: Desk) -> None:
    intent, other = await desk.pending("a"), await desk.pending("b")
    common = "".join(a for a, b in zip(str(intent), str(other), strict=True) if a == b)[:6]
    await desk.cli("intents", "show", common, code=1, err=(str(intent), str(other)))
    for command in (("dlq", "show", "ffffffff"), ("intents", "cancel", "ffffffff", "--reason", "r", "--yes")):
        await desk.cli(*command, code=1, err="starts with ffffffff")
    assert (await desk.cli("intents", "show", "nonsense")).code == 2


async def test_a_claim_is_not_overdue_while_its_lease_runs(desk: Desk) -> None:
    await desk.live("l")
    await desk.spine.all("UPDATE idem.outbox SET available_at = now() - interval '1 h' RETURNING 1")
    (row,) = await outbox(desk)
    assert (row["status"], row["overdue"]) == ("claimed", 0)
    await desk.spine.advance(100)
    (row,) = await outbox(desk)
    assert row["overdue"] >= 60


async def outbox(desk: Desk) -> list[dict[str, Any]]:
    return list((await desk.cli("status", "--json")).data["outbox"])
