"""The ordering key at every door: SQL alone, HTTP, the library, the import; and after a loss of commits."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import fix_api
import psycopg
import pytest
from adopt.shop import Charge, define
from fix_desk import Desk
from fix_spine import Spine
from fix_sql import engine_of
from hypothesis import given
from hypothesis import strategies as st
from importing.lines import in_flight, line, taken
from producers.application import synced
from sqlalchemy.orm import Session

from idem import Answer
from idem.errors import ConfigError
from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.domain import ordering
from idem.outbox.recovery import quarantine
from idem.outbox.values.errors import ParamsInvalid

BY_SQL = "SELECT d.decision, d.intent_id, d.status FROM idem.accept('t', 'pay.keyed', %s, %s, false, %s) AS d"


async def statuses(spine: Spine, *intents: UUID) -> list[str | None]:
    return [await spine.status(intent) for intent in intents]


async def test_a_producer_of_sql_names_the_key_and_its_followers_are_rendered_when_it_is_their_turn(
    spine: Spine,
) -> None:
    synced(spine.url, spine.catalogue)
    with psycopg.connect(spine.url) as connection:
        done = [
            connection.execute(BY_SQL, [f"k{n}", json.dumps({"amount": 100 + n}), "o"]).fetchone() for n in range(3)
        ]
    assert [(d, s) for d, _, s in done if d] == [("accepted", "unfrozen")] + [("accepted", "waiting")] * 2  # type: ignore[misc]
    intents = [each[1] for each in done if each]
    for n in range(3):
        assert await statuses(spine, *intents) == [None] * n + ["unfrozen"] + ["waiting"] * (2 - n)
        assert (await spine.work()).claimed == 1
    assert spine.effects() == 3


async def test_sql_takes_the_key_from_the_params_where_the_operation_says_so(spine: Spine) -> None:
    spine.know("pay.keyed", "keyed", ordering_key="/customer", ordering_group="customers")
    synced(spine.url, spine.catalogue)
    with psycopg.connect(spine.url, autocommit=True) as connection:
        connection.execute(BY_SQL, ["k1", '{"amount": 1, "customer": "c1"}', None])
        _, intent, status = connection.execute(BY_SQL, ["k2", '{"amount": 1, "customer": "c1"}', "c1"]).fetchone() or ()
        assert status == "waiting"
        for given_key, params, said in (
            (None, '{"amount": 1}', "the ordering key of this operation is a text of 1 to 255 characters"),
            (None, '{"amount": 1, "customer": 1.5}', "at /customer"),
            ("c2", '{"amount": 1, "customer": "c1"}', "another one was given"),
        ):
            with pytest.raises(psycopg.errors.InvalidParameterValue, match=said):
                connection.execute(BY_SQL, ["k3", params, given_key])
    row = await spine.row(intent)
    assert (row["ordering_group"], row["ordering_key"], row["refusal_holds"]) == ("customers", "c1", True)


VALUES = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=4),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(allow_nan=False, allow_infinity=False, width=16), st.booleans(), st.none(), st.just("x" * 256),
    st.just({"a": 1}), st.just([1]),
)  # fmt: skip


@given(VALUES)
def test_sql_and_python_read_the_same_key(functions_connection: Any, value: Any) -> None:
    params = {"a/b": {"c~d": value}}
    try:
        here = ordering.key_of("pay", params, "/a~1b/c~0d", None)
    except ParamsInvalid:
        here = None
    functions_connection.execute("SAVEPOINT here")
    try:
        (there,) = functions_connection.execute(
            "SELECT idem.ordering_key_of(idem.jcs(%s::json)::jsonb, %s, NULL)", [json.dumps(params), ["a/b", "c~d"]]
        ).fetchone()
    except psycopg.errors.InvalidParameterValue:
        there = None
    functions_connection.execute("ROLLBACK TO SAVEPOINT here")
    assert here == there


@pytest.fixture(scope="session")
def functions_connection(server: str, template: str) -> Any:
    from fix_database import clone

    with clone(server, template) as url, psycopg.connect(url) as connection:
        yield connection
        connection.rollback()


async def test_over_http_the_follower_is_told_that_it_waits_and_what_lacks_the_field_is_refused(spine: Spine) -> None:
    spine.know("pay.keyed", "keyed", ordering_key="/customer", while_running="accepted")
    async with fix_api.client(spine) as client:
        first = await client.ask("k1", json={"amount": 1, "customer": 7})
        second = await client.ask("k2", json={"amount": 1, "customer": 7})
        assert (first.json()["status"], second.json()["status"]) == ("queued", "waiting_for_order")
        again = await client.ask("k2", json={"amount": 1, "customer": 7})
        assert (again.status_code, again.json()["status"], again.headers["retry-after"]) == (
            202, "waiting_for_order", "5",
        )  # fmt: skip
        shown = (await client.http.get(second.headers["location"])).json()
        assert shown["status"] == "waiting_for_order"
        refused = await client.ask("k3", json={"amount": 1})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/customer")
        cancelled = await client.http.delete(second.headers["location"])
        assert cancelled.json()["outcome"] == "cancelled"


async def test_over_http_an_open_transaction_of_the_key_is_waited_for_as_long_as_the_api_waits(spine: Spine) -> None:
    """503 with Retry-After: nothing was written, and other keys go on."""
    spine.know("pay.keyed", "keyed", ordering_key="/customer")
    with engine_of(spine.url).connect() as connection:
        spine.acceptor.accept(connection, "t", "pay.keyed", "k0", {"amount": 1, "customer": "c"})
        async with fix_api.client(spine, settings=ApiSettings(port=0, timeout=0.5)) as client:
            assert await client.told("k1", json={"amount": 1, "customer": "c"}) == (503, "store_unavailable")
            assert (await client.ask("k2", json={"amount": 1, "customer": "d"})).status_code == 202
            connection.commit()
            again = await client.ask("k1", json={"amount": 1, "customer": "c"})
            assert (again.status_code, again.json()["status"]) == (202, "waiting_for_order")


async def test_the_library_takes_the_key_with_accept_and_with_submit(spine: Spine, idem_toml: Path) -> None:
    _, charge = define(idem_toml)
    engine = engine_of(spine.url)
    params = Charge(amount=100, currency="eur")
    with Session(engine) as session, session.begin():
        first = charge.accept(session, params, key="k1", ordering_key="o")
    with Session(engine) as session:
        call = charge.begin(key="k2", body={"amount": 100})
        with session.begin():
            assert call.reserve(session)
            call.submit(session, params, ordering_key="o")
        told = call.answer()
    assert told.status == 202 and json.loads(told.body)["status"] == "waiting_for_order"
    assert await statuses(spine, first.intent_id, UUID(json.loads(told.body)["intent"])) == ["pending", "waiting"]
    for wrong in ("", "x" * 256, 7, "a\0b"):
        with Session(engine) as session, session.begin(), pytest.raises(ConfigError, match="an ordering key"):
            charge.accept(session, params, key="k3", ordering_key=wrong)


def test_what_no_worker_calls_has_no_order(idem_toml: Path) -> None:
    idem, _ = define(idem_toml)
    with pytest.raises(ConfigError, match="only calls that a worker makes have an order"):
        idem.operation("labels.print", Charge, provider="ledger", inline=True, ordering_key="/order")
    with pytest.raises(ConfigError, match="only calls that a worker makes have an order"):
        idem.operation("notes.write", Charge, ordering_group="notes", answer=lambda o: Answer(201, {}))


async def test_imported_calls_are_in_the_order_of_their_lines(desk: Desk, configuration: Path, tmp_path: Path) -> None:
    """What has ended waits for nothing, and a refusal of the system before holds nothing."""
    written = desk.spine
    file = configuration
    file.write_text(
        file.read_text().replace('[operations."pay.keyed"]', '[operations."pay.keyed"]\nordering_key = "/amount"', 1)
    )
    done = await taken(desk, tmp_path, line("k0", "refused"), in_flight("k1"), line("k2", "queued"), in_flight("k3"))
    assert done.code == 0, done
    rows = await written.all(
        "SELECT n.idempotency_key AS key, o.status FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id"
        " ORDER BY o.ordering_number"
    )
    assert [(row["key"], row["status"]) for row in rows] == [("k1", "unknown"), ("k2", "waiting"), ("k3", "unknown")]
    assert await written.lacks("FROM idem.order_holds")


async def test_after_a_loss_what_waits_keeps_waiting_while_a_second_send_is_harmless(spine: Spine) -> None:
    harmless = [spine.accepted(f"a{n}", ordering_key="o") for n in range(2)]
    other = [spine.accepted(f"b{n}", ordering_key="o", operation="pay.keyless") for n in range(2)]
    await spine.run(quarantine.lost, spine.catalogue, by="ann", reason="a restore")
    assert await statuses(spine, *harmless) == ["pending", "waiting"]
    assert await statuses(spine, *other) == ["unknown", "unknown"], "each may have been sent by what was lost"
    await spine.work(times=2)
    assert await statuses(spine, *harmless) == [None, None]
