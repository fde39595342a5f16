"""`idem find` and the filters of lists: an intent is found by whatever a person has in hand."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from fix_desk import Desk

from idem.outbox.operator import search

LISTS = (("intents", "intents"), ("dlq", "dead_letters"), ("unknowns", "unknowns"))


async def one(desk: Desk) -> dict[str, Any]:
    """An intent that has everything, beside another."""
    intent = await desk.pending("order-4711")
    await desk.settle(await desk.claim(), _succeeded())
    await desk.pending("other")
    async with desk.spine.database.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute("UPDATE idem.intents SET label = %(l)s WHERE id = %(i)s", {"l": LABEL, "i": intent})
        await connection.execute(
            "INSERT INTO idem.requests (outbox_id, generation, intent_id, provider_key, provider, account, method,"
            " path, headers, body) SELECT outbox_id, 2, intent_id, gen_random_uuid(), provider, account, method, path,"
            " headers, body FROM idem.requests WHERE intent_id = %(i)s", {"i": intent},
        )  # fmt: skip
    keys = await desk.spine.all("SELECT provider_key FROM idem.requests WHERE intent_id = %(i)s", i=intent)
    return {"intent": intent, "keys": [str(row["provider_key"]) for row in keys]}


def _succeeded() -> Any:
    from idem.outbox.domain.outcomes import Succeeded

    return Succeeded("pi_3QK2")


LABEL = "order 4711 of Ada, " + "x" * 300


async def found(desk: Desk, text: str) -> list[tuple[str, list[str]]]:
    result = await desk.cli("find", text, "--json")
    return [(each["id"], each["found_by"]) for each in result.data["intents"]]


async def test_every_name_of_an_intent_finds_it(desk: Desk) -> None:
    known = await one(desk)
    intent = str(known["intent"])
    assert await found(desk, intent) == [(intent, ["id"])]
    assert await found(desk, intent[:23]) == [(intent, ["id"])]
    assert await found(desk, "pi_3QK2") == [(intent, ["reference"])]
    assert await found(desk, LABEL) == [(intent, ["label"])]
    assert await found(desk, "order-4711") == [(intent, ["key"])]
    assert len(known["keys"]) == 2
    for key in known["keys"]:
        assert await found(desk, key) == [(intent, ["provider key"])], "earlier ones too"
    letter = await desk.bury(known["intent"], "conflict")
    assert (intent, ["dead letter"]) in await found(desk, str(letter))
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert intent in [each for each, by in await found(desk, today) if by == ["time"]]


@pytest.mark.parametrize("text", ["nothing", LABEL + "y", "LIKE%", "' OR true --", "2001-01-01", "ffff", " "])
async def test_what_names_nothing_finds_nothing_and_says_so(desk: Desk, text: str) -> None:
    await one(desk)
    await desk.cli("find", text, code=3, out=(f"no intent matches {text}:", "idem intents list --since 24h"))


@pytest.mark.parametrize(("command", "name"), LISTS)
async def test_every_list_is_filtered(desk: Desk, command: str, name: str) -> None:
    """Each list of things that have an intent takes each filter, and says the provider and the account of each."""
    intent = await desk.unknown("u")
    await desk.bury(intent, "conflict")
    async with desk.spine.database.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        for table in ("intents", "outbox"):
            await connection.execute(f"UPDATE idem.{table} SET provider_reference = 'pi_3QK2'")
        await connection.execute("UPDATE idem.intents SET label = %(l)s", {"l": LABEL})
    for option, value, other in (
        ("--label", LABEL, "no"), ("--reference", "pi_3QK2", "pi"), ("--account", "keyed", "eu"),
        ("--provider", "keyed", "lookup"), ("--since", "1h", "2999-01-01"), ("--until", "2999-01-01", "1h"),
    ):  # fmt: skip
        (here,) = (await desk.cli(command, "list", option, value, "--json")).data[name]
        assert str(intent) in here.values() and (here["provider"], here["account"]) == ("keyed", "keyed"), option
        assert (await desk.cli(command, "list", option, other, "--json")).data[name] == [], option
    assert "matches" in (await desk.cli(command, "list", "--label", "no")).out


def test_ids_of_a_time_are_a_range() -> None:
    moment = datetime(2026, 11, 28, tzinfo=UTC)
    since = search.first_id(moment)
    made = UUID(int=((int(moment.timestamp() * 1000) + 5) << 80) | (7 << 76) | 1)
    assert since < made < search.first_id(datetime(2026, 11, 29, tzinfo=UTC))
