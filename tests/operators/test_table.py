"""Each cell of the table of operators' commands holds on a real database, and none but an override pays twice."""

from typing import Any
from uuid import UUID

import fix_commands
import pytest
from fix_desk import Desk
from operators.situations import BUILDERS

from idem.cli.operator import bulk
from idem.errors import OperatorRefused
from idem.outbox.domain.states import Reason
from idem.outbox.operator import dead_letters
from idem.outbox.operator.command_table import COMMANDS, READ_ONLY, SITUATIONS, WHOLE, Cell, Situation
from idem.outbox.recovery import quarantine, release
from idem.outcomes import Succeeded

SAYS = {
    Cell.MAY_STILL_ACT: "may still act",
    Cell.CONTRADICTED: "say",
    Cell.UNPROVEN: "may pay twice",
    Cell.NO_MEMORY: "may pay twice",
    Cell.NOT_BURNED: "is not burned",
    Cell.ON_A_WORD: "nothing proves it",
}
TWICE = {Cell.CONTRADICTED, Cell.UNPROVEN, Cell.NO_MEMORY}
SENDS = {"redrive", "new_key", "bulk", "approve"}
ASKS = {"held, never approved", "approval, hint"}
"""What a redrive of them queues waits for an approval: it is not sent."""
TABLES = ("intents", "idempotency_keys", "outbox", "evidence", "events", "dead_letters", "proofs", "requests")


async def act(desk: Desk, command: str, intent: UUID, *, sure: bool = False) -> None:
    word = {"know_it_did_not_happen": True} if sure else {}
    match command:
        case "completed":
            await desk.act("resolve_completed", intent, outcome=Succeeded("pay_1", "succeeded"))
        case "failed":
            await desk.act("resolve_failed", intent, **word)
        case "redrive":
            await desk.act("redrive", intent, **word)
        case "new_key":
            await desk.act("redrive", intent, new_provider_key=True, **word)
        case "bulk":
            async with desk.spine.database.connection() as connection:
                if why_not := await bulk._why_not(connection, desk.spine.catalogue, intent):
                    raise OperatorRefused(why_not)
            await desk.act("redrive", intent)
        case "cancel":
            await desk.act("cancel", intent, **word)
        case "client":
            await desk.act("cancel", intent, source="client", by="token acme")
        case "approve":
            await desk.act("approve", intent)
        case "reject":
            await desk.act("reject", intent, **word)


async def alone(desk: Desk) -> None:
    """What earlier cells have left queued waits: the worker sees this cell's row alone."""
    await desk.spine.forced(
        "UPDATE idem.outbox SET available_at = now() + '10 d' WHERE status IN ('pending', 'unfrozen')"
    )


async def effects(desk: Desk, intent: UUID) -> int:
    """How often the bank has carried out this intent, under whichever key; of a flow, its open step or the last one."""
    rows = await desk.spine.all(
        "SELECT provider_key::text AS k FROM idem.requests r WHERE intent_id = %(i)s AND r.step = coalesce("
        "(SELECT o.step FROM idem.outbox o WHERE o.intent_id = r.intent_id),"
        " (SELECT greatest(n.recovery_point, 1) FROM idem.intents n WHERE n.id = r.intent_id))",
        i=intent,
    )
    keys = {row["k"] for row in rows}
    return sum(each.key in keys or each.reference in keys for each in desk.spine.bank.log.effects())


async def everything(desk: Desk) -> list[Any]:
    return [await desk.spine.all(f"SELECT * FROM idem.{table} ORDER BY 1, 2, 3") for table in TABLES]


@pytest.mark.sample(3)
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
async def test_each_cell(desk: Desk, situation: Situation) -> None:
    build = BUILDERS[situation.name]
    desk.spine.know("pay.asked", approve=lambda params: True)
    intent = await build(desk, "refused")
    for command in COMMANDS:
        cell = situation.cell(command)
        if cell is Cell.ALLOWED:
            continue
        before = await everything(desk)
        with pytest.raises(OperatorRefused) as refused:
            await act(desk, command, intent)
        assert await everything(desk) == before, command
        assert SAYS.get(cell, "") in str(refused.value), command
        if cell is Cell.REFUSED and command not in ("completed", "bulk", "client", "approve"):
            with pytest.raises(OperatorRefused):
                await act(desk, command, intent, sure=True)
            assert await everything(desk) == before, command
    for command in COMMANDS:
        cell = situation.cell(command)
        if cell is Cell.REFUSED:
            continue
        await alone(desk)
        intent = await build(desk, command)
        acted = await effects(desk, intent)
        assert acted <= situation.acted, "the table says that the provider cannot have it"
        await alone(desk)
        await act(desk, command, intent, sure=cell is not Cell.ALLOWED)
        await desk.spine.work()
        sent = await effects(desk, intent)
        if command not in SENDS or acted:
            allowed = acted + (command in SENDS and cell in TWICE)
            assert acted <= sent <= allowed, f"{command}: {acted} effects before, {sent} after"
        else:
            assert sent == (0 if situation.name in ASKS else 1), command
        if cell in TWICE:
            kept = await desk.spine.all(
                "SELECT details ->> 'overridden' AS o FROM idem.evidence WHERE intent_id = %(i)s"
                " AND details ? 'overridden'", i=intent,
            )  # fmt: skip
            assert kept or command in ("cancel", "reject"), "what was overridden is on record"


def test_every_situation_is_made_and_every_one_is_in_the_table() -> None:
    assert sorted(BUILDERS) == sorted(each.name for each in SITUATIONS)
    assert all(len(each.cells) == len(COMMANDS) for each in SITUATIONS)
    assert all(each.cell(command) in (Cell.ALLOWED, Cell.REFUSED) for each in SITUATIONS for command in ("bulk",))


@pytest.mark.sample(2)
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
async def test_the_commands_about_all_rows_pay_nothing_twice(desk: Desk, situation: Situation) -> None:
    """`reconcile --now`, `recover --lossless` and `recover --lost`, one after the other, and then a worker."""
    spine = desk.spine
    spine.know("pay.asked", approve=lambda params: True)
    intent = await BUILDERS[situation.name](desk, "k")
    acted = await effects(desk, intent)
    was = await desk.state(intent)
    await spine.run(release.release, spine.catalogue, by="ada", reason="nothing was lost")
    released = await desk.state(intent)
    assert released == (("in_progress", "pending") if situation.name == "unknown, database changed" else was)
    await spine.reconcile(hasten=True)
    asked = await desk.state(intent)
    if (
        was[1] in ("approval", "pending", "waiting", "unfrozen", "claimed", "held", None)
        and "proof" not in situation.name
    ):
        assert asked == was, "nothing is asked about a row that was not sent"
    await spine.run(quarantine.lost, spine.catalogue, by="ada", reason="restored")
    assert (await desk.state(intent))[1] in (asked[1], "unknown")
    await spine.work()
    assert await effects(desk, intent) <= max(1, acted)


@pytest.mark.parametrize("reason", Reason)
async def test_an_entry_alone_is_closed_or_discarded_only_where_no_intent_waits_for_it(
    desk: Desk, reason: Reason
) -> None:
    unknown, held = await desk.unknown("u"), await desk.held("h")
    about_unknown, about_held = await desk.bury(unknown, reason), None
    if reason is not Reason.REJECTED:  # it has one already
        about_held = await desk.bury(held, reason)
    alone_entry = await desk.bury(None, reason, subject="s")
    closed = reason in dead_letters.CLOSED_ALONE
    decided = closed and reason not in (Reason.CONFLICT, Reason.POSSIBLE_DUPLICATE)
    for letter, may_close, may_discard in (
        (about_unknown, decided, False), (about_held, closed, False),
        (alone_entry, False, reason is not Reason.HANDLER_FAILED),
    ):  # fmt: skip
        if letter is None:
            continue
        assert await done(desk, "close", letter) is may_close or may_discard
        if not may_close:
            assert await done(desk, "discard", letter) is may_discard
    assert (await desk.state(unknown))[1] == "unknown" and (await desk.state(held))[1] == "held"


async def done(desk: Desk, what: str, letter: UUID) -> bool:
    row = await desk.spine.one(
        "SELECT l.seen, n.version FROM idem.dead_letters l LEFT JOIN idem.intents n ON n.id = l.intent_id"
        " WHERE l.id = %(l)s", l=letter,
    )  # fmt: skip
    async with desk.spine.database.connection() as connection:
        try:
            if what == "close":
                await dead_letters.close_dead_letter(connection, letter, by="ada", reason="known", **row)
            else:
                await dead_letters.discard(connection, letter, by="ada", reason="known", seen=row["seen"])
        except OperatorRefused:
            return False
    return True


async def test_what_only_looks_and_what_pauses_changes_no_row(desk: Desk) -> None:
    for number, name in enumerate(("pending", "unknown, remembered", "held, refused as it is", "completed")):
        await alone(desk)
        await BUILDERS[name](desk, f"k{number}")
    intent = str((await desk.spine.all("SELECT id FROM idem.intents LIMIT 1"))[0]["id"])
    letter = str((await desk.spine.all("SELECT id FROM idem.dead_letters LIMIT 1"))[0]["id"])
    named = {"find": (intent,), "intents show": (intent,), "dlq show": (letter,)}
    token = (await desk.cli("token", "create", "t", "--label", "shop", "--json")).data
    before = await everything(desk)
    for arguments in (
        *((*each.split(), *named.get(each, ())) for each in READ_ONLY),
        ("token", "create", "t", "--label", "x"), ("db", "upgrade"), ("db", "sync"),
        ("pause", "keyed", "--reason", "r"), ("resume", "keyed", "--reason", "r"),
        ("token", "revoke", token["id"], "--reason", "r", "--yes"),
    ):  # fmt: skip
        result = await desk.cli(*arguments)
        assert result.code == 0 or arguments == ("doctor",), (arguments, result)
        assert await everything(desk) == before, arguments


LONG_RUNNING = ("api", "bank", "webhooks", "worker", "sweeper", "reconciler")
DAEMONS = {"run", "up", "demo", "bench", *(f"{name} run" for name in LONG_RUNNING)}


def test_every_command_is_in_the_table() -> None:
    """A new command needs its place: about one intent, another one, or one that only looks."""
    told = [*COMMANDS.values(), *(name for names in WHOLE for name in names.split(", ")), *READ_ONLY]
    there = {" ".join(path) for path in fix_commands.COMMANDS} - DAEMONS
    assert {name for name in there if not any(f"{each} ".startswith(f"{name} ") for each in told)} == set()
