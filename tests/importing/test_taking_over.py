"""What a home-made outbox has promised is kept after it was taken over: its answers, and one effect a wish."""

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from fix_desk import Desk
from importing.lines import HOUR, WHY, in_flight, line, taken

from idem.decisions import Accepted, Mismatch, Replay, Retrying, Unknown
from idem.errors import OperatorRefused
from idem.outbox.recovery.quarantine import lost

TABLES = ("intents", "idempotency_keys", "outbox", "requests", "evidence", "events", "dead_letters")


async def sent_before(desk: Desk, provider_key: str) -> tuple[str, dict[str, Any]]:
    """The system before has made this call, and nobody saw its answer: the payment, and the request byte for byte."""
    body = b'{"amount":100,"currency":"eur","from":"the old code"}'
    request = {"method": "POST", "path": "/payments", "body_base64": base64.b64encode(body).decode(),
               "headers": {"Idempotency-Key": provider_key, "content-type": "application/json"}}  # fmt: skip
    async with httpx.AsyncClient(base_url=desk.spine.bank.url, verify=False) as client:
        credentials = {"authorization": "Bearer keyed-token", **request["headers"]}  # type: ignore[dict-item]
        made = await client.post("/payments", content=body, headers=credentials)
    return made.json()["id"], request


async def rows(desk: Desk) -> dict[str, int]:
    return {t: (await desk.spine.one(f"SELECT count(*) AS n FROM idem.{t}"))["n"] for t in TABLES}


async def intent_of(desk: Desk, key: str = "k1") -> UUID:
    return UUID(str((await desk.spine.one("SELECT id FROM idem.intents WHERE idempotency_key = %(k)s", k=key))["id"]))


@pytest.mark.parametrize(("written", "hint"), [("pay.keyd", "Did you mean pay.keyed?"), ("zzz", "Known: pay.keyed")])
async def test_a_misspelt_operation_is_named_with_others(desk: Desk, tmp_path: Path, written: str, hint: str) -> None:
    """Nothing of it is in the database, so nothing is said of rows there."""
    for options in (WHY, ("--dry-run",)):
        done = await taken(desk, tmp_path, line("k1") | {"operation": written}, options=options)
        assert done.code == 1 and f"line 1: operation: no operation '{written}' is configured" in done.err
        assert hint in done.err and "idem.toml" in done.err and "--app" in done.err
        assert "rows of this operation" not in done.err
    assert set((await rows(desk)).values()) == {0}


async def test_a_finished_wish_answers_its_client_byte_for_byte(desk: Desk, tmp_path: Path) -> None:
    body = bytes(range(256))
    answer = {"status": 402, "headers": {"X-Old": "1"}, "body_base64": base64.b64encode(body).decode()}
    done = await taken(desk, tmp_path, line("k1", reference="pay_1"), line("k2", "refused", answer=answer))
    assert done.code == 0 and "imported: 1 completed, 1 refused" in done.err, done
    first, second = desk.spine.accept("k1"), desk.spine.accept("k2")
    assert isinstance(first, Replay) and isinstance(second, Replay)
    assert (first.answer.status, first.answer.body, dict(first.answer.headers)) == (
        201, b"paid", {"content-type": "text/plain"},
    )  # fmt: skip
    assert (second.answer.status, second.answer.body, dict(second.answer.headers)) == (402, body, {"X-Old": "1"})
    assert isinstance(desk.spine.accept("k1", 101), Mismatch), "the same key for other content is refused, as ever"
    await desk.spine.work()
    assert desk.spine.bank.log.sends() == []
    assert await desk.spine.all("SELECT FROM idem.events") == [], "the system before has told its own"
    seen = await desk.spine.one(
        "SELECT details, to_state FROM idem.evidence WHERE source = 'import' AND outcome = 'succeeded'"
    )
    assert seen["to_state"] == "completed" and seen["details"]["reason"] == "moved from the payments table"


async def test_a_key_lives_as_long_as_the_system_before_has_promised(desk: Desk, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    done = await taken(
        desk, tmp_path,
        line("k1", expires_at=(now + 2 * HOUR).isoformat()), line("k2", expires_at=(now - HOUR).isoformat()),
    )  # fmt: skip
    assert "1 completed; 1 expired, skipped" in done.err
    expires = (await desk.spine.one("SELECT expires_at FROM idem.idempotency_keys"))["expires_at"]
    assert abs(expires - now - 2 * HOUR) < timedelta(minutes=5)


@pytest.mark.parametrize("state", ["queued", "in_flight"])
async def test_an_open_call_is_not_left_out_because_its_key_is_over(desk: Desk, tmp_path: Path, state: str) -> None:
    """It would vanish: nobody would make it, or ask what became of it."""
    over = (datetime.now(UTC) - HOUR).isoformat()
    open_call = (
        in_flight("k1", provider_key=str(uuid4()), expires_at=over)
        if state == "in_flight"
        else (line("k1", "queued", answer=None, expires_at=over))
    )
    done = await taken(desk, tmp_path, line("k2"), open_call)
    assert done.code != 0
    assert f"line 2: expires_at: {state}, but its key has expired. To let idem make or settle this call" in done.err
    assert await desk.spine.all("SELECT FROM idem.intents") == [], "a file with a wrong line is not begun"


async def test_an_import_is_no_use_by_the_tenant(desk: Desk, tmp_path: Path) -> None:
    assert (await taken(desk, tmp_path, line("k1"))).code == 0
    assert await desk.spine.all("SELECT FROM idem.decisions_to_count") == []


async def test_a_call_in_flight_is_replayed_under_its_own_key_and_bytes(desk: Desk, tmp_path: Path) -> None:
    key = str(uuid4())
    payment, request = await sent_before(desk, key)
    await taken(desk, tmp_path, in_flight("k1", provider_key=key, request=request))
    assert isinstance(desk.spine.accept(), Unknown)
    await desk.spine.work()
    await desk.spine.reconcile(hasten=True)
    assert [e for e in await desk.spine.evidence(await intent_of(desk)) if e[1] == "replay"]
    answer = desk.spine.accept()
    assert isinstance(answer, Replay) and payment in answer.answer.body.decode()
    assert desk.spine.effects() == 1


@pytest.mark.parametrize("ago", [timedelta(hours=23, minutes=58), timedelta(days=3)])
async def test_nothing_is_sent_again_past_the_provider_s_memory(desk: Desk, tmp_path: Path, ago: timedelta) -> None:
    key = str(uuid4())
    payment, request = await sent_before(desk, key)
    await taken(desk, tmp_path, in_flight("k1", ago=ago, provider_key=key, request=request, reference=payment))
    sends = len(desk.spine.bank.log.sends())
    await desk.spine.reconcile(hasten=True)
    assert len(desk.spine.bank.log.sends()) == sends
    assert isinstance(desk.spine.accept(), Replay), "its reference was looked up"


async def test_without_its_bytes_a_call_in_flight_is_only_asked_about(desk: Desk, tmp_path: Path) -> None:
    """What the operation renders now need not be what was sent then."""
    key = str(uuid4())
    await taken(desk, tmp_path, in_flight("k1", provider_key=key))
    for _ in range(3):
        await desk.spine.reconcile(hasten=True)
    assert desk.spine.bank.log.sends() == []
    row = await desk.spine.row(await intent_of(desk)) or {}
    assert (row["status"], str(row["provider_key"]), row["replay_window"]) == ("unknown", key, 0)
    assert row["imported_as"] == "key", "the request that idem renders today shows nothing of what was sent"


@pytest.mark.parametrize("ago", [HOUR, timedelta(days=3)])
async def test_after_a_word_the_memory_counts_from_the_first_send(desk: Desk, tmp_path: Path, ago: timedelta) -> None:
    """The intent was created only at the import: counted from there the provider would remember for a day more."""
    key = str(uuid4())
    _, request = await sent_before(desk, key)
    await taken(desk, tmp_path, in_flight("k1", ago=ago, provider_key=key, request=request))
    intent = await intent_of(desk)
    await desk.spine.advance(200)
    await desk.act("resolve_failed", intent)
    if ago == HOUR:
        assert (await desk.act("redrive", intent)).state == "in_progress"
        return
    with pytest.raises(OperatorRefused, match="no longer remembers its key"):
        await desk.act("redrive", intent)
    await desk.spine.run(lost, desk.spine.catalogue, by="ann", reason="a test")
    row = await desk.spine.row(intent) or {}
    assert row["status"] == "unknown", "nobody sends it again after a restore either"
    assert row["doubted_since"] < datetime.now(UTC) - timedelta(days=3)


async def test_absence_proves_nothing_while_the_system_before_may_still_be_sending(desk: Desk, tmp_path: Path) -> None:
    await taken(desk, tmp_path, in_flight("k1"))
    for _ in range(3):
        await desk.spine.reconcile(hasten=True)
    intent = await intent_of(desk)
    assert await desk.spine.status(intent) == "unknown"
    for _ in range(4):
        await desk.spine.reconcile(after=300, hasten=True)
    assert await desk.spine.status(intent) in ("held", "pending")


async def test_what_was_proven_not_executed_waits_for_its_client(desk: Desk, tmp_path: Path) -> None:
    key = str(uuid4())
    await taken(desk, tmp_path, line("k1", "failed", provider_key=key))
    intent = await intent_of(desk)
    assert await desk.spine.status(intent) == "held"
    assert await desk.spine.letters(intent) == ["too_late"], "an operator, too, can let it go on"
    assert await desk.spine.works() == 0
    assert isinstance(desk.spine.accept(), Retrying)
    await desk.spine.work()
    assert [request.key for request in desk.spine.bank.log.sends()] == [key]
    assert isinstance(desk.spine.accept(), Replay)


async def test_the_queue_goes_on(desk: Desk, tmp_path: Path) -> None:
    await taken(desk, tmp_path, line("k1", "queued"))
    assert await desk.spine.works() == 1 and isinstance(desk.spine.accept(), Replay)
    await desk.spine.sweep()


async def test_run_again_it_writes_what_is_new_and_nothing_twice(desk: Desk, tmp_path: Path) -> None:
    first, second = line("k1"), in_flight("k2")
    await taken(desk, tmp_path, first)
    assert "imported: 1 in_flight; 1 imported before" in (await taken(desk, tmp_path, first, second)).err
    before = await rows(desk)
    again = await taken(desk, tmp_path, first, second, options=(*WHY, "--json"))
    assert again.code == 0 and again.data == {
        "lines": 2, "new": {}, "already": 2, "expired": 0, "wrong": 0, "errors": [], "refused": None,
        "written": True,
    }  # fmt: skip
    assert await rows(desk) == before
    other = await taken(desk, tmp_path, line("k1", params={"amount": 5}))
    assert other.code == 1 and "line 1: key: it was imported from another line" in other.err


async def test_a_key_that_idem_has_itself_is_left_alone(desk: Desk, tmp_path: Path) -> None:
    desk.spine.accepted("k1")
    done = await taken(desk, tmp_path, line("k2"), line("k1"))
    assert done.code == 1 and "line 2: key: idem already has it (in_progress), and not from an import" in done.err
    assert isinstance(desk.spine.accept("k2"), Accepted), "nothing of the file was written"


async def test_a_dry_run_checks_everything_and_writes_nothing(desk: Desk, tmp_path: Path) -> None:
    before = await rows(desk)
    done = await taken(desk, tmp_path, line("k1"), line("k2", "queued"), options=("--dry-run",))
    assert done.code == 0 and "would be imported: 1 completed, 1 queued" in done.err
    assert await rows(desk) == before
    assert (await taken(desk, tmp_path, line("k1"), options=())).code == 2


KEY = str(uuid4())
WRONG: tuple[tuple[dict[str, Any] | str, str], ...] = (
    ("{", "it is not JSON that idem can store exactly"),
    ('{"a": 1, "a": 2}', "it is not JSON that idem can store exactly"),
    ("[]", "the line:"),
    (line() | {"stat": 1}, "stat: Extra inputs"),
    (line(state="done"), "state: Input should be 'queued'"),
    (line(operation="pay.nothing"), "pay.nothing"),
    (line(params=[1]), "params: the operation refuses the params"),
    (line(key="with space"), "the idempotency key is not usable"),
    (line(tenant=""), "tenant: it is empty"),
    (line(tenant="ü" * 128), "tenant: it has 256 bytes; at most 255 are allowed"),
    (line(reference="r" * 256), "reference: it has 256 characters"),
    (line(answer=None), "answer: a line that is completed needs one"),
    (line(state="queued", answer={"status": 201}), "answer: a line that is queued must not have one"),
    (line(answer={"status": 500}), "status 500; 2xx to 4xx are stored"),
    (line(answer={"status": 201, "headers": {"a": "b\nc"}}), "a header 'a' that HTTP cannot carry"),
    (line(answer={"status": 201, "body": "a", "body_base64": "YQ=="}), "not both"),
    (line(answer={"status": 201, "body_base64": "?"}), "body_base64 is not valid base64"),
    (line(state="in_flight", provider_key=KEY), "first_sent_at: say when"),
    (in_flight(provider_key=None), "provider_key: say under which key"),
    (in_flight(provider_key="order-17"), "is not a UUID in lower case"),
    (in_flight(provider_key=KEY.upper()), "is not a UUID in lower case"),
    (in_flight(ago=-HOUR), "first_sent_at: it is in the future"),
    (line(first_sent_at="2026-01-01T00:00:00Z"), "only an in_flight line has them"),
    (line(state="in_flight", provider_key=KEY, first_sent_at="2026-01-01T00:00:00"), "first_sent_at: Input should"),
    (in_flight(provider_key=KEY, request={"method": "POST", "path": "/p", "headers": {"Idempotency-Key": "x"}}),
     "is not the provider_key under which it was sent"),
    (in_flight(provider_key=KEY, request={"method": "POST", "path": "/p", "headers": {"Authorization": "Bearer s"}}),
     "is a credential"),
    (in_flight(provider_key=KEY, request={"method": "POST", "path": "p", "headers": {"idempotency-key": KEY}}),
     "start with a slash"),
)  # fmt: skip


async def test_every_wrong_line_is_named_with_its_number_and_nothing_is_written(desk: Desk, tmp_path: Path) -> None:
    for wrong, words in WRONG:
        done = await taken(desk, tmp_path, line("good"), "", wrong, options=(*WHY, "--json"))
        assert done.code == 1, (wrong, done)
        (error,) = done.data["errors"]
        assert error["line"] == 3 and words in error["error"], (wrong, error)
        assert "Traceback" not in done.err
    assert (await rows(desk))["intents"] == 0
    twice = await taken(desk, tmp_path, line("a"), line("a"), in_flight("b", provider_key=KEY),
                        in_flight("c", provider_key=KEY))  # fmt: skip
    assert "line 2: key: the same tenant, operation and key are in line 1" in twice.err
    assert "line 4: provider_key: line 3 has the same one" in twice.err
    assert "nothing was written: 2 of 4 lines are wrong" in twice.err
