"""`idem pause` and `idem resume` as a person calls them, and where a pause shows."""

import pytest
from fix_desk import Desk

WHY = ("--reason", "their maintenance, ticket 4711")


async def test_pause_says_where_what_and_how_it_is_taken_back(desk: Desk) -> None:
    done = await desk.cli("pause", "keyed", *WHY, code=0)
    first, *rest = done.err.splitlines()
    assert first.startswith("environment test, database idem_test_")
    cure = 'idem resume keyed --reason "..."'
    assert rest[0] == f"provider keyed, all accounts: calls and look-ups are now paused until `{cure}`"
    assert done.out == ""
    again = await desk.cli("pause", "keyed", *WHY)
    assert (again.code, "already paused" in again.err) == (0, True)
    await desk.cli(
        "resume", "keyed", "--reason", "it is over", err="provider keyed, all accounts: calls and look-ups are resumed"
    )
    assert "nothing was paused" in (await desk.cli("resume", "keyed", "--reason", "again")).err


async def test_json_has_what_changed_and_what_is_paused_now(desk: Desk) -> None:
    done = await desk.cli("pause", "keyed", "--account", "keyed", "--what", "accept, calls", *WHY, "--json")
    assert done.data["changed"] == ["calls", "accept"]
    (lane,) = done.data["lanes"]
    assert (lane["account"], lane["what"], lane["paused_by"]) == ("keyed", ["calls", "accept"], "grace")
    back = await desk.cli("resume", "keyed", "--what", "accept", "--reason", "queue is short", "--json")
    assert back.data["changed"] == [{"account": "keyed", "what": ["accept"]}]
    assert back.data["lanes"][0]["what"] == ["calls"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("pause", "keyd", *WHY), 1, "Did you mean keyed?"),
        (("pause", "keyed", "--account", "keyd", *WHY), 1, "no account 'keyd'. Did you mean keyed?"),
        (("pause", "keyed", "--what", "call", *WHY), 2, "cannot be paused"),
        (("pause", "keyed", "--what", ",", *WHY), 2, "it is empty"),
        (("pause", "keyed"), 2, "--reason"),
        (("pause", "keyed", "--reason", " "), 1, "say why"),
        (("resume", "keyd", *WHY), 1, "Did you mean keyed?"),
    ],
)
async def test_a_mistake_changes_nothing_and_says_what_to_do(
    desk: Desk, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = await desk.cli(*arguments)
    assert (done.code, words in done.err) == (code, True), done.err
    assert await desk.spine.all("SELECT FROM idem.lane_changes") == []


async def test_another_environment_is_refused(desk: Desk) -> None:
    await desk.spine.all("UPDATE idem.installation SET environment = 'production' RETURNING 1")
    done = await desk.cli("pause", "keyed", *WHY)
    assert (done.code, "wrong database" in done.err) == (2, True)
    assert await desk.spine.all("SELECT FROM idem.lanes") == []


async def test_it_needs_no_secret_of_the_provider(desk: Desk) -> None:
    """Who is on call has the database's URL, and no token of the bank."""
    del desk.environment["BANK_TOKEN"]
    done = await desk.cli("pause", "keyed", *WHY)
    assert (done.code, "now paused" in done.err) == (0, True)


async def test_what_is_gone_from_the_configuration_can_be_resumed(desk: Desk) -> None:
    await desk.spine.all("INSERT INTO idem.lanes (provider, account, paused) VALUES ('old', 'main', true) RETURNING 1")
    assert "account main: calls are resumed" in (await desk.cli("resume", "old", *WHY)).err


async def test_status_shows_each_part_with_who_why_and_since(desk: Desk) -> None:
    await desk.pending("p")
    await desk.unknown("u")
    await desk.cli("pause", "keyed", "--what", "calls", *WHY)
    await desk.cli("pause", "keyed", "--account", "keyed", "--what", "accept", "--reason", "too long", "--by", "ada")
    found = (await desk.cli("status", "--json")).data
    assert {(row["status"], row["paused"]) for row in found["outbox"]} == {("pending", True), ("unknown", False)}
    paused = [(p["account"], p["what"], p["paused_by"], p["reason"]) for p in found["paused"]]
    assert paused == [("", "calls", "grace", WHY[1]), ("keyed", "accept", "ada", "too long")]
    text = (await desk.cli("status")).out
    for words in ("pending (paused)", "all", "accept", "ticket 4711"):
        assert words in text


async def test_doctor_warns_of_a_pause_and_says_how_to_end_it(desk: Desk) -> None:
    await desk.pending("p")
    await desk.cli("pause", "keyed", "--what", "calls,accept", *WHY)
    done = await desk.cli("doctor", "--json")
    found = [each for each in done.data["findings"] if each["check"] == "paused"]
    assert [each["level"] for each in found] == ["warning", "warning"]
    assert "1 row waits" in str(found[0]) and "new intents are refused" in str(found[1])
    assert "idem resume keyed" in str(found[0])
