"""Whose account the credentials are is asked at the start, and nothing is called under another's (hazard 8)."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from doctor.conftest import Doctor, doctor  # noqa: F401
from fix_desk import Desk
from fix_server import Asked, serving
from fix_spine import Spine
from fix_steps import lane, working
from fix_waiting import stopping, until
from schema.conftest import installed, installed_once, roles  # noqa: F401
from schema.databases import Installed
from settling.shop import account
from structlog.testing import capture_logs

from idem.errors import ConfigError
from idem.outbox.calls.lookup_pages import ListFailed
from idem.outbox.config import load
from idem.outbox.config.settings import ReconcilerSettings
from idem.outbox.database.pool import Database
from idem.outbox.domain.contract import ProviderRequest, Response
from idem.outbox.operator.pause import pause, resume
from idem.outbox.providers.account_rule import AccountCheck
from idem.outbox.providers.listing import Listing
from idem.outbox.providers.signing import RenewedToken
from idem.outbox.values import clock
from idem.outbox.worker import account_check
from idem.outbox.worker.claim_gate import ClaimPlan
from idem.outbox.worker.worker import Worker
from idem.outcomes import CouldNotAsk, NotExecuted
from idem.reconciler.daemon import Reconciler
from idem.sending import Question

OURS, THEIRS = "ours-token", "theirs-token"


@dataclass
class House:
    """A provider that says at /account whose token it was sent, and makes every payment that it is asked for.

    `says`: the status of the next answers at /account, the last one for good; 0 hangs up.
    """

    url: str = ""
    says: list[int] = field(default_factory=lambda: [200])
    asked: list[str] = field(default_factory=list)
    """Who asked at /account."""
    others: list[tuple[str, str]] = field(default_factory=list)
    """Everything else: whose token, and the method."""
    hang: asyncio.Event | None = None
    names: dict[str, str] = field(default_factory=dict)
    """The account of a token that is not named after it."""
    lists: bool = False
    """It answers a look-up with an empty list instead of a 404."""

    async def serve(self, asked: Asked) -> tuple[int, bytes] | None:
        who = asked.headers["authorization"].removeprefix("Bearer ")
        status, body = self.answer(asked.method, asked.path, who)
        if self.hang is not None:
            await self.hang.wait()
        return (status, json.dumps(body).encode()) if status else None

    def answer(self, method: str, path: str, who: str) -> tuple[int, Any]:
        if path == "/account":
            self.asked.append(who)
            status = self.says.pop(0) if len(self.says) > 1 else self.says[0]
            return status, {"id": self.names.get(who, f"acct_{who}")} if status == 200 else {"error": {"code": "x"}}
        self.others.append((who, method))
        if method == "GET" and self.lists:
            return 200, {"data": []}
        return (404, {}) if method == "GET" else (200, {"id": "pay_1", "status": "succeeded", "amount": 100})


@pytest.fixture
async def house(spine: Spine) -> AsyncIterator[House]:
    """It takes the bank's place for the keyed account; all is accepted for our account."""
    found = House()
    async with serving(found.serve) as found.url:
        use(spine, found, OURS)
        yield found


def use(spine: Spine, house: House, token: str) -> None:
    """Let the keyed account have these credentials."""
    spine.change("keyed", account_question=AccountCheck(path="/account", at=("id",)))
    account(spine, origin=house.url, credentials={"authorization": f"Bearer {token}"})


async def unanswered(spine: Spine, house: House) -> UUID:
    """A payment to which the house hangs up."""
    house.answer, plain = lambda *asked: (0, {}) if asked[1] == "/payments" else plain(*asked), house.answer  # type: ignore[method-assign]
    intent = await spine.sent("lost")
    house.answer = plain  # type: ignore[method-assign]
    await spine.expect(intent, key="unknown")
    return intent


async def stored(spine: Spine) -> list[tuple[str, str, str]]:
    rows = await spine.all("SELECT * FROM idem.account_identities")
    return [(row["account"], row["identity"], row["seen_identity"]) for row in rows]


async def test_the_first_start_stores_and_the_next_finds_the_same(spine: Spine, house: House) -> None:
    for number in range(2):
        intent = spine.accepted(f"k{number}")
        with capture_logs() as lines:
            await spine.work()
        assert (await spine.key(intent))["state"] == "completed"
        assert await stored(spine) == [("keyed", f"acct_{OURS}", f"acct_{OURS}")]
        assert [line["event"] for line in lines if line["event"].startswith("account_")] == [
            "account_known" if number else "account_stored"
        ]
    assert house.asked == [OURS] * 2


async def test_under_another_accounts_credentials_nothing_is_called(spine: Spine, house: House) -> None:
    """No send, no replay, no look-up; one line says which setting, what is stored and what was found."""
    await spine.work()
    lost = await unanswered(spine, house)
    house.others.clear()
    waits = spine.accepted("waits")
    await spine.advance(60)
    use(spine, house, THEIRS)
    with capture_logs() as lines:
        await spine.work()
        await spine.reconcile(hasten=True)
    assert house.others == []
    assert (await spine.key(lost))["state"] == "unknown"
    assert (await spine.key(waits))["state"] == "in_progress"
    assert await stored(spine) == [("keyed", f"acct_{OURS}", f"acct_{THEIRS}")]
    (line, _) = [line for line in lines if line["event"] == "another_account"]
    assert (line["log_level"], line["setting"]) == ("error", "providers.keyed.accounts.keyed")
    assert (line["expected"], line["found"]) == (f"acct_{OURS}", f"acct_{THEIRS}")
    assert "restart" in line["do"]
    use(spine, house, OURS)
    await spine.work()
    await spine.reconcile(hasten=True)
    assert [(await spine.key(intent))["state"] for intent in (lost, waits)] == ["completed"] * 2
    assert await stored(spine) == [("keyed", f"acct_{OURS}", f"acct_{OURS}")]


@pytest.mark.parametrize("kind", ["worker", "reconciler"])
async def test_a_daemon_serves_its_other_lanes_and_looks_again(
    spine: Spine, house: House, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of the table goes, as docs/on-call.md has it: what is found then is stored, and the lane is served."""
    monkeypatch.setattr(account_check, "AGAIN", 0.2)
    await spine.work()
    use(spine, house, THEIRS)
    other = spine.accepted("other", operation="pay.keyless")
    mine = spine.accepted("mine")
    if kind == "reconciler":
        await spine.execute(
            "UPDATE idem.outbox SET status = 'unknown', first_sent_at = now(), attempt = 1, available_at = now(),"
            " lookups = 0 WHERE intent_id = %(i)s", i=mine,
        )  # fmt: skip
        await spine.execute("UPDATE idem.idempotency_keys SET state = 'unknown' WHERE intent_id = %(i)s", i=mine)
    async with working(spine, kind):
        if kind == "worker":
            await until(lambda: completed(spine, other))
        await until(lambda: house.asked.count(THEIRS) >= 3)
        assert house.others == []
        assert await stored(spine) == [("keyed", f"acct_{OURS}", f"acct_{THEIRS}")]
        await spine.all("DELETE FROM idem.account_identities WHERE account = 'keyed' RETURNING 1")
        await until(lambda: completed(spine, mine))
    assert await stored(spine) == [("keyed", f"acct_{THEIRS}", f"acct_{THEIRS}")]


async def completed(spine: Spine, intent: Any) -> bool:
    return bool((await spine.key(intent))["state"] == "completed")


@pytest.mark.parametrize("failure", [0, 500, 503, 404, 401, 403])
async def test_an_outage_at_the_start_holds_up_nobody(spine: Spine, house: House, failure: int) -> None:
    """It serves, and says once that it could not ask."""
    house.says = [failure]
    intent = spine.accepted()
    with capture_logs() as lines:
        await spine.work()
    assert (await spine.key(intent))["state"] == "completed"
    assert await stored(spine) == []
    (line,) = [line for line in lines if line["event"] == "account_unchecked"]
    assert line["log_level"] == "warning" and (not failure or f"HTTP {failure}" in line["why"])


async def test_not_found_is_not_believed_while_a_known_account_is_not_confirmed(spine: Spine, house: House) -> None:
    """Credentials of another account, whose provider does not say whose they are: each look-up would find nothing."""
    async with working(spine, "reconciler"):
        await until(lambda: stored(spine))
        assert house.asked == [OURS]
    intent = spine.accepted()
    await spine.execute(
        "UPDATE idem.outbox SET replay_window = 0, status = 'unknown', attempt = 1, available_at = now(),"
        " first_sent_at = now() - interval '1 day', quiet_after = now() - interval '1 hour'"
    )
    use(spine, house, THEIRS)
    house.says = [403]
    with capture_logs() as lines:
        await spine.reconcile(hasten=True, times=4)
    assert house.others == [] and await spine.status(intent) == "unknown"
    assert [line["served"] for line in lines if line["event"] == "account_unchecked"] == [False] * 4
    house.says = [200]
    use(spine, house, OURS)
    await spine.reconcile(hasten=True)
    assert house.others, "confirmed again, it is asked"
    assert await spine.status(intent) is not None


async def test_after_an_outage_it_is_asked_until_it_is_known(
    spine: Spine, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another account, known only after the outage: the lane is not served any more, by a process that served it."""
    monkeypatch.setattr(account_check, "AGAIN", 0.5)
    await spine.work()
    use(spine, house, THEIRS)
    house.says = [503, 0, 503, 200]
    early = spine.accepted("early")
    async with working(spine) as (worker, _):
        await until(lambda: completed(spine, early))
        await until(lambda: house.asked.count(THEIRS) == 4)
        (lane,) = [each.lane for each in worker.lanes if each.name.account == "keyed"]
        await until(lambda: not lane.served)
        late = spine.accepted("late")
        house.says = [503]
        await until(lambda: house.asked.count(THEIRS) >= 6)
        assert (await spine.key(late))["state"] == "in_progress", "an outage does not make it the right account"
    assert house.others == [(THEIRS, "POST")]
    assert await stored(spine) == [("keyed", f"acct_{OURS}", f"acct_{THEIRS}")]


async def test_two_processes_at_once_store_once(spine: Spine, house: House) -> None:
    """The first word wins, whoever says it; who says another is not served, and all agree on which it is."""
    use(spine, house, THEIRS)
    theirs = spine.catalogue
    use(spine, house, OURS)
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(stopping(Worker(spine.database, each, spine.settings)))
            for each in (spine.catalogue, theirs) * 4
        ]
        await asyncio.gather(*(worker.run_once() for worker in workers))
        ((_, identity, _),) = await stored(spine)
        served = [lane.lane.served for worker in workers for lane in worker.lanes if lane.name.account == "keyed"]
        assert served == [identity == f"acct_{OURS}", identity == f"acct_{THEIRS}"] * 4


async def test_a_call_that_has_its_claim_already_is_given_back(spine: Spine, house: House) -> None:
    """Nor is anything looked up or listed: a list of another account would make discrepancies of all payments."""
    await spine.work()
    use(spine, house, THEIRS)
    spine.change("keyed", ledger=Listing(path="/payments?since={idem.since}"))
    settings = ReconcilerSettings(lease=30)
    async with stopping(Reconciler(spine.database, spine.catalogue, settings, slots=4, margin=1)) as daemon:
        await daemon.check_accounts(store=False)
        assert await stored(spine) == [("keyed", f"acct_{OURS}", f"acct_{OURS}")], "a dry run writes nothing"
        (lane,) = [each.lane for each in daemon.lanes if each.name.account == "keyed"]
        ends = clock.boottime() + 30
        request = spine.provider().freeze(ProviderRequest("POST", "/payments", json={}), "k")
        outcome, _ = await lane.send("row", request, lease_ends=ends, start=lambda: True)
        assert outcome == NotExecuted("given_back")
        look, seen = await lane.ask(Question("k", "pay_1", awaiting=False), lease_ends=ends)
        assert look == CouldNotAsk() and "another account" in (seen.note or "")
        with pytest.raises(ListFailed, match="another account"):
            [item async for item in lane.list(0, 1)]
    assert house.others == []


@pytest.fixture
def token(spine: Spine, house: House, tmp_path: Path) -> Callable[[str], object]:
    """The keyed account has its token in a file: this rewrites it."""
    file = tmp_path / "token"
    file.write_text(OURS)
    account(spine, credentials={}, signer=RenewedToken(file, "Bearer "))
    return file.write_text


async def test_a_token_that_is_renewed_is_asked_about_anew(spine: Spine, house: House, token: Any) -> None:
    """By a process that lives: the same account's goes on, and another account's calls nothing."""
    async with stopping(Worker(spine.database, spine.catalogue, spine.settings)) as worker:
        for number, (text, state) in enumerate([(OURS, "completed"), (THEIRS, "in_progress"), (OURS, "completed")]):
            token(text)
            for lane in worker.lanes:
                await lane.account.once()
            intent = spine.accepted(f"k{number}")
            await worker.run_once()
            assert (await spine.key(intent))["state"] == state
    assert list(dict.fromkeys(house.asked)) == [OURS, THEIRS] and house.asked[-1] == OURS
    assert {who for who, _ in house.others} == {OURS}


async def keyed_lane(worker: Worker) -> Any:
    (lane,) = [each for each in worker.lanes if each.name.account == "keyed"]
    await lane.account.once()
    return lane


@pytest.mark.parametrize("in_between", ["a pause", "a lost database"])
async def test_a_renewed_token_serves_nothing_until_it_has_been_asked_about(
    spine: Spine, house: House, token: Any, in_between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question was begun, and came to nothing: the lane that was served under the old token is not served now."""
    everything: Any = ("calls", "lookups")
    async with stopping(Worker(spine.database, spine.catalogue, spine.settings)) as worker:
        lane = await keyed_lane(worker)
        token(THEIRS)
        intent = spine.accepted()
        if in_between == "a pause":
            await spine.run(pause, "keyed", "keyed", everything, by="ada", reason="theirs")
            await lane.account.once()
            await spine.run(resume, "keyed", "keyed", everything, by="ada", reason="over")
        else:
            with monkeypatch.context() as patch, pytest.raises(psycopg.OperationalError):
                patch.setattr(account_check, "SEE_ACCOUNT", "SELECT pg_terminate_backend(pg_backend_pid())")
                await lane.account.once()
        assert not await lane.account.holds() and await lane._claim(ClaimPlan(1)) == []
        await lane.account.once()
        await worker.run_once()
        assert (await spine.key(intent))["state"] == "in_progress" and house.others == []
        token(OURS)
        await lane.account.once()
        await worker.run_once()
        assert (await spine.key(intent))["state"] == "completed"
    assert {who for who, _ in house.others} == {OURS}


async def test_a_token_that_is_renewed_while_it_is_asked_about_is_asked_about_again(
    spine: Spine, house: House, token: Any
) -> None:
    """What the provider says then is about the old one."""
    plain = house.answer

    def renewing(method: str, path: str, who: str) -> tuple[int, Any]:
        token(THEIRS)
        return plain(method, path, who)

    house.answer = renewing  # type: ignore[method-assign]
    async with stopping(Worker(spine.database, spine.catalogue, spine.settings)) as worker:
        lane = await keyed_lane(worker)
        spine.accepted()
        await worker.run_once()
        assert (house.asked, house.others) == ([OURS, THEIRS], []) and not lane.lane.served


@pytest.mark.parametrize("confirmed", [True, False])
async def test_new_credentials_of_the_same_account_change_nothing(spine: Spine, house: House, confirmed: bool) -> None:
    """What was sent under the old ones is settled as before: the provider has confirmed whose both are. Where it has
    not, because it could not tell, nothing shows it (docs/decisions/0040)."""
    house.says = [200] if confirmed else [503]
    lost = await unanswered(spine, house)
    await spine.execute("UPDATE idem.outbox SET replay_window = 0")
    house.says = [200]
    house.names = {"rotated-token": f"acct_{OURS}"}
    house.lists = True
    use(spine, house, "rotated-token")
    for seconds in (60, 200, 200):
        await spine.reconcile(after=seconds, hasten=True)
    assert ("rotated-token", "GET") in house.others
    assert ((await spine.key(lost))["state"] == "unknown") is not confirmed


async def test_a_daemon_is_stopped_while_it_asks(spine: Spine, house: House) -> None:
    """It claims nothing before it has asked, and its end waits for no answer."""
    hangs = asyncio.Event()
    house.hang = hangs
    intent = spine.accepted()
    async with working(spine):
        await until(lambda: house.asked == [OURS])
        await asyncio.sleep(0.3)
        assert await spine.status(intent) == "pending"
    hangs.set()
    assert house.others == []
    assert await spine.column("SELECT ended_how FROM idem.daemons") == ["clean"]


async def test_a_pause_of_everything_stops_the_question_too(spine: Spine, house: House) -> None:
    await spine.run(pause, "keyed", "keyed", ("calls", "lookups"), by="ada", reason="theirs")
    await spine.work()
    assert house.asked == []


async def test_no_daemon_may_change_the_first_word(spine: Spine, house: House, installed: Installed) -> None:  # noqa: F811
    """The rights of the daemons' role are enough for the check, and for nothing else in the table."""
    async with stopping(Database(installed.url("daemon"), name="idem-test-role", size=2)) as database:
        await database.open()
        async with database.connection() as connection:
            first = await account_check.see(connection, lane(spine), "acct_1", "w1")
            second = await account_check.see(connection, lane(spine), "acct_2", "w2")
            assert (first.name, first.first, second.name, second.first) == ("acct_1", True, "acct_1", False)
            for verb in ("UPDATE idem.account_identities SET identity = 'x'", "DELETE FROM idem.account_identities"):
                with pytest.raises(Exception, match="permission denied"):
                    await connection.execute(verb)


async def test_the_doctor_names_what_a_daemon_has_met(desk: Desk, doctor: Doctor) -> None:  # noqa: F811
    await doctor.finds("accounts", "ok")
    await desk.spine.execute(
        "INSERT INTO idem.account_identities (provider, account, origin, identity, seen_identity, seen_by) VALUES"
        " ('keyed', 'keyed', 'https://a', 'acct_1', 'acct_2', 'worker-1'),"
        " ('keyed', 'gone', 'https://a', 'acct_1', 'acct_2', 'worker-1')"
    )
    await doctor.finds("accounts", "error", "keyed/keyed", "acct_1", "acct_2", "worker-1 (host here, pid 1)")
    await desk.spine.all("UPDATE idem.account_identities SET seen_at = now() - interval '2 days' RETURNING 1")
    await doctor.finds("accounts", "ok")


TOML = """
environment = "test"
[providers.x]
kind = "%s"
%s
[providers.x.accounts.main]
origin = "https://x.example"
"""


def test_stripe_has_one_and_the_user_may_say_another(tmp_path: Path) -> None:
    def configured(kind: str, table: str) -> Any:
        file = tmp_path / "idem.toml"
        file.write_text(TOML % (kind, table))
        return load(file, {}).providers["x"]

    stripe = configured("stripe", "")
    assert (stripe.account_check().method, stripe.account_check().path) == ("GET", "/v1/account")
    assert stripe.read_account(Response(200, {}, b'{"id": "acct_1", "object": "account"}')) == "acct_1"
    other = configured("stripe", 'account_check = { path = "/v1/balance", at = "/livemode_of" }')
    assert other.account_check().path == "/v1/balance"
    rules = 'object.reference = "/id"\noutcome = [{ says = "final", status = 200 }]\non_unsettleable = "operator"'
    assert configured("http", rules).account_check() is None
    for wrong in ('path = "account", at = "/id"', 'path = "/account", at = ""', 'path = "/account", at = "id"'):
        with pytest.raises(ConfigError):
            configured("http", f"{rules}\naccount_check = {{ {wrong} }}")


@pytest.mark.parametrize(
    ("status", "body", "named"),
    [
        (200, b'{"id": "acct_1"}', "acct_1"),
        (200, b'{"id": 17}', "17"),
        (200, b'{"id": null}', None),
        (200, b'{"id": ""}', None),
        (200, b'{"id": {"a": 1}}', None),
        (200, b'{"id": "a\\u0000b"}', None),
        (200, b'{"id": "a", "id": "b"}', None),
        (200, b"<html>", None),
        (302, b'{"id": "acct_1"}', None),
        (401, b'{"id": "acct_1"}', None),
    ],
)
def test_what_names_an_account(status: int, body: bytes, named: str | None) -> None:
    assert AccountCheck(path="/account", at=("id",)).read(Response(status, {}, body)) == named
