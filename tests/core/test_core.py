"""The whole path, small: on databases that idem did not choose, and with the lowest and newest versions that it allows.

`make test-lowest` and `make test-newest` run this folder, each in an environment of its own.
"""

import socket
from urllib.parse import urlsplit

from fix_api import client
from fix_desk import Desk

from idem.outcomes import Ambiguous

WORDS = "ü — 日本 \U0001f600"


async def test_accept_call_settle_and_the_same_answer_again(desk: Desk) -> None:
    spine = desk.spine
    async with client(spine) as known:
        assert (await known.ask("k1", 700)).status_code == 202
        await spine.work()
        first = await known.ask("k1", 700)
        again = await known.ask("k1", 700)
        assert (first.status_code, again.status_code, first.content) == (201, 201, again.content)
        assert again.headers["idempotent-replayed"] == "true"
        assert (await known.ask("k1", 701)).status_code == 422
        told = await known.ask("k2", json={"amount": 5, "note": WORDS})
        assert told.status_code == 202
        shown = await known.http.get(f"/v1/intents/{known.intent(told)}")
        assert shown.status_code == 200 and shown.json()["created_at"].startswith("20")
        listed = await known.http.get("/v1/intents")
        assert [each["state"] for each in listed.json()["intents"]] == ["in_progress", "completed"]
        for path in ("/readyz", "/healthz", "/openapi.json"):
            assert (await known.http.get(path)).status_code == 200, path
    assert spine.effects() == 1
    stored = await spine.one("SELECT params ->> 'note' AS note FROM idem.intents WHERE idempotency_key = 'k2'")
    assert stored["note"] == WORDS


async def test_a_lost_answer_is_looked_up_and_settled(desk: Desk) -> None:
    spine = desk.spine
    intent = await desk.pending("lost")
    await spine.work()
    assert (await desk.state(intent))[0] == "completed"
    unknown = await desk.after("unsent", Ambiguous())
    assert await desk.state(unknown) == ("unknown", "unknown")
    await spine.reconcile(after=30)
    # Its provider repeats answers under the key, so it is asked by a replay.
    assert (await desk.state(unknown))[0] == "completed"
    assert spine.effects() == 2


async def test_an_expired_lease_is_swept_and_a_refused_request_rests(desk: Desk) -> None:
    intent = await desk.live("k")
    await desk.spine.advance(31)
    swept = await desk.cli("sweeper", "run", "--once", "--json")
    assert (swept.code, swept.data["swept"]) == (0, 1)
    assert await desk.state(intent) == ("unknown", "unknown")
    held = await desk.held("refused")
    assert await desk.state(held) == ("failed_retryable", "held")
    assert await desk.spine.letters(held) == ["rejected"]


async def test_every_list_and_every_look_of_a_person(desk: Desk) -> None:
    unknown, held = await desk.unknown("u"), await desk.held("h")
    await desk.completed("c")
    await desk.awaiting("a")
    made = await desk.cli("token", "create", "t", "--label", WORDS, "--json")
    assert made.code == 0, made
    letter = await desk.letter(held, "rejected")
    for command in (
        ("intents", "list"), ("intents", "show", unknown), ("unknowns", "list"), ("unknowns", "export"),
        ("dlq", "list"), ("dlq", "show", letter), ("token", "list"), ("status",), ("db", "check"), ("db", "current"),
        ("config", "check"), ("config", "show"), ("tenants", "top"),
        ("dlq", "redrive", letter, "--reason", WORDS, "-y"), ("pause", "keyed", "--reason", WORDS),
        ("resume", "keyed", "--reason", WORDS), ("db", "upgrade"), ("reconcile", "--now"),
    ):  # fmt: skip
        for options in ((), ("--json",)):
            if options and command[:2] in (("dlq", "redrive"), ("unknowns", "export"), ("pause", "keyed"),
                                           ("resume", "keyed")):  # fmt: skip
                continue
            result = await desk.cli(*command, *options)
            assert (result.code, "Traceback" in result.err) == (0, False), (command, result)
    checked = await desk.cli("doctor", "--json")
    assert [each for each in checked.data["findings"] if "could not be checked" in each["what"]] == []
    assert [each for each in checked.data["findings"] if each["check"] in ("row_security", "encoding", "objects")
            and each["level"] != "ok"] == []  # fmt: skip


async def test_a_host_that_is_none_changes_nothing_about_a_request(desk: Desk) -> None:
    """IB-192: an older web framework builds a URL of it: `[` was a 500, and `x#` took the query away."""
    async with client(desk.spine) as known:
        for number, host in enumerate((b"x", b"[", b"x#", b"x?", b"a b", b"\xff", b"]:1", b"")):
            status = await _get(known.url, known.token, host, f"/v1/intents?limit={number + 1}0000")
            assert status in (400, 422), (host, status)
            status = await _get(known.url, known.token, host, "/v1/intents?limit=1")
            assert status in (200, 400), (host, status)


async def _get(url: str, token: str, host: bytes, path: str) -> int:
    import asyncio

    def ask() -> int:
        at = urlsplit(url)
        with socket.create_connection((at.hostname or "", at.port or 0), 20) as line:
            line.sendall(
                b"GET %b HTTP/1.1\r\nHost: %b\r\nAuthorization: Bearer %b\r\nConnection: close\r\n\r\n"
                % (path.encode(), host, token.encode())
            )
            return int(line.makefile("rb").readline().split()[1])

    return await asyncio.to_thread(ask)
