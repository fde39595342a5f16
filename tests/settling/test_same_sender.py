"""What was sent as one account is neither believed absent nor sent again as another one (docs/decisions/0040).

Nobody has configured `account_check`. A number that the row keeps of its first send says whether credentials, headers
of the account and the rules of the look-ups are as they were; where they are not, a payment that was sent like the row
must be found first.
"""

import asyncio
import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from fix_spine import BY_ID, KEYED, Spine, lookup
from fix_waiting import stopping
from settling import shop
from settling.shop import account, keyed, lost, much_later, paid

from idem.outbox.config.settings import ReconcilerSettings
from idem.outbox.providers.signing import RenewedToken
from idem.outbox.worker import worker
from idem.outbox.worker.claim_gate import ClaimPlan
from idem.reconciler.daemon import Reconciler
from idem.testing.bank import BankAccount as BankAccount

OTHER = "Bearer another-token"
ROTATED = "Basic " + base64.b64encode(b"keyed-token:rotated").decode()
"""Another credential of the same account."""


def lookups_only(spine: Spine) -> None:
    shop.use(spine, key=replace(KEYED.key, replay="success_only"))


def replays_only(spine: Spine) -> None:
    shop.use(spine, lookups=False)


@pytest.fixture
def another(spine: Spine) -> Spine:
    """The bank has a second account, of which nobody has told idem."""
    spine.bank.add_account(BankAccount("another", "another-token"))
    return spine


async def soon(spine: Spine) -> None:
    """As far as two absences are a verdict, within the memory of the provider."""
    for seconds in (60, 200, 200):
        await spine.reconcile(after=seconds, hasten=True)
        await spine.work()


async def stands(spine: Spine, intent: UUID, why: str, *, letter: str = "reconcile_exhausted") -> None:
    """A person reads what has changed and what to do."""
    await shop.stands(spine, intent, why, "restore the old ones", letter=letter)


@pytest.fixture
def token(another: Spine, tmp_path: Path) -> Callable[[str], object]:
    """The account has its token in a file: this rewrites it."""
    found = tmp_path / "token"
    found.write_text("keyed-token")
    account(another, credentials={}, signer=RenewedToken(found, "Bearer "))
    return found.write_text


WAYS: list[Callable[[Spine], None]] = [lookups_only, replays_only, lambda spine: None]


@pytest.mark.parametrize("older", [False, True], ids=["the first payment ever", "after another one"])
@pytest.mark.parametrize("use", WAYS, ids=["lookups", "replays", "both"])
async def test_credentials_of_another_account_prove_nothing(
    another: Spine, use: Callable[[Spine], None], older: bool
) -> None:
    spine = another
    use(spine)
    if older:
        await paid(spine, "older")
    intent = await lost(spine)
    before = len(shop.sends(spine))
    account(spine, credentials={"authorization": OTHER})
    await much_later(spine)
    assert (len(shop.sends(spine)), spine.effects()) == (before, before)
    letter = "not_settleable" if use is replays_only else "reconcile_exhausted"
    await stands(spine, intent, "the credentials or the headers of the account", letter=letter)


async def test_the_old_credentials_settle_it(another: Spine) -> None:
    spine = another
    right = spine.catalogue
    intent = await lost(spine)
    account(spine, credentials={"authorization": OTHER})
    await soon(spine)
    assert (await spine.row(intent))["status"] == "unknown"
    spine.catalogue = right
    await soon(spine)
    assert (await spine.key(intent))["state"] == "completed"
    assert (spine.effects(), await spine.letters(intent)) == (1, [])


@pytest.mark.parametrize("use", [lookups_only, replays_only], ids=["lookups", "replays"])
async def test_a_header_of_the_account_is_a_part_of_the_sender(spine: Spine, use: Callable[[Spine], None]) -> None:
    """As Stripe-Account: the same key, and another merchant's objects."""
    use(spine)
    account(spine, credentials={"authorization": "Bearer keyed-token", "x-merchant": "one"})
    intent = await lost(spine, fault="drop_before_acting")
    sends = len(shop.sends(spine))
    account(spine, credentials={"authorization": "Bearer keyed-token", "x-merchant": "two"})
    await much_later(spine)
    assert len(shop.sends(spine)) == sends, "of this merchant nothing is known that was sent as the other one"
    letter = "not_settleable" if use is replays_only else "reconcile_exhausted"
    await stands(spine, intent, "the credentials or the headers of the account", letter=letter)


async def test_a_token_that_is_rewritten_while_the_daemon_lives(spine: Spine, token: Callable[[str], object]) -> None:
    lookups_only(spine)
    settings = ReconcilerSettings(lease=30)
    async with stopping(Reconciler(spine.database, spine.catalogue, settings, slots=4, margin=1)) as one:
        await one.run_once(hasten=True)
        intent = await lost(spine)
        token("another-token")
        for seconds in (200, 200, 600, 4000, 4000, 90000):
            await spine.advance(seconds)
            await one.run_once(hasten=True)
            await spine.work()
        assert len(shop.sends(spine)) == 1
        await stands(spine, intent, "the credentials or the headers of the account")
        token("keyed-token")
        await spine.advance(200)
        await one.run_once(hasten=True)
        assert (await spine.key(intent))["state"] == "completed"


async def test_a_token_that_is_rewritten_between_claim_and_send(spine: Spine, token: Callable[[str], object]) -> None:
    """As whom it leaves is on record before the first byte does: it waits for a claim under the new one."""
    intent = spine.accepted()
    async with stopping(worker.Worker(spine.database, spine.catalogue, spine.settings)) as one:
        (lane,) = [each for each in one.lanes if each.name.account == "keyed"]
        (claimed,) = await lane._claim(ClaimPlan(1))
        token("another-token")
        settling = asyncio.create_task(one.settler.run())
        lane._start([claimed])
        await lane.finish()
        await one.settler.drain()
        settling.cancel()
        assert shop.sends(spine) == [] and (await spine.row(intent))["status"] == "pending"
        await one.run_once()
    assert len(shop.sends(spine)) == 1 and (await spine.key(intent))["state"] == "completed"


@pytest.mark.parametrize("use", WAYS, ids=["lookups", "replays", "both"])
async def test_a_key_that_is_rotated_on_the_same_account_needs_no_operator(
    spine: Spine, use: Callable[[Spine], None]
) -> None:
    """An older payment is found with the new key, so it is the same account: all is settled, and paid once."""
    use(spine)
    await paid(spine, "older")
    intents = [await lost(spine, "acted"), await lost(spine, "never", "drop_before_acting")]
    account(spine, credentials={"authorization": ROTATED})
    await soon(spine)
    if use is replays_only:
        # Nothing can show the same account here: it waits for the old key.
        assert [(await spine.row(intent))["status"] for intent in intents] == ["unknown"] * 2
        assert spine.effects() == 2
        return
    await soon(spine)
    assert [(await spine.key(intent))["state"] for intent in intents] == ["completed"] * 2
    assert spine.effects() == 3
    assert [await spine.letters(intent) for intent in intents] == [[], []]


async def test_after_a_rotation_a_later_payment_of_the_old_key_shows_it_too(spine: Spine) -> None:
    lookups_only(spine)
    intent = await lost(spine, fault="drop_before_acting")
    await paid(spine, "later")
    account(spine, credentials={"authorization": ROTATED})
    await paid(spine, "newer")
    await soon(spine)
    assert (await spine.key(intent))["state"] == "completed"


@pytest.mark.parametrize("older", [False, True], ids=["the first payment ever", "after another one"])
async def test_a_lookup_that_does_not_find_old_calls_proves_nothing(spine: Spine, older: bool) -> None:
    """A typing mistake in its path, or a member that only new objects have."""
    lookups_only(spine)
    if older:
        await paid(spine, "older")
    intent = await lost(spine)
    before = spine.effects()
    wrong = lookup("key").model_copy(update={"path": "/payments?key=none-{idem.key}"})
    keyed(spine, lookups=(BY_ID, wrong))
    await much_later(spine)
    assert spine.effects() == before
    await stands(spine, intent, "the rules of its look-ups")


async def test_a_lookup_that_is_changed_and_finds_older_payments_settles(spine: Spine) -> None:
    lookups_only(spine)
    await paid(spine, "older")
    intent = await lost(spine, fault="drop_before_acting")
    other = lookup("key").model_copy(update={"absent": 404})
    keyed(spine, lookups=(BY_ID, other))
    await soon(spine)
    assert (await spine.key(intent))["state"] == "completed"


async def test_the_first_payment_ever_settles_by_absence_where_nothing_has_changed(spine: Spine) -> None:
    lookups_only(spine)
    intent = await lost(spine, fault="drop_before_acting")
    shop.use(spine, lookup=replace(KEYED.lookup, agree=3, horizon=20), flight_limit=90)
    await soon(spine)
    await soon(spine)
    await spine.expect(intent, key="completed", effects=1)


async def test_what_rests_on_an_operators_word_is_not_sent_as_another(another: Spine) -> None:
    """The word is no proof: the redrive counts on the memory of the account that has got it."""
    spine = another
    replays_only(spine)
    intent = await lost(spine)
    await spine.advance(2000)

    await spine.act("resolve_failed", intent)
    await spine.act("redrive", intent)
    right = spine.catalogue
    account(spine, credentials={"authorization": OTHER})
    for _ in range(3):
        await spine.work()
        await spine.advance(61)
    assert spine.effects() == 1 and (await spine.row(intent))["status"] == "pending"
    spine.catalogue = right
    await spine.work(after=61)
    assert (await spine.key(intent))["state"] == "completed" and spine.effects() == 1


async def test_a_call_of_unknown_sender_has_that_of_its_first_look(another: Spine) -> None:
    """An imported call, or one that the caller's own code has made."""
    spine = another
    lookups_only(spine)
    intent = await lost(spine)
    await spine.all("UPDATE idem.outbox SET sent_as = NULL RETURNING id")
    await spine.reconcile(hasten=True)
    if (row := await spine.row_if_any(intent)) is not None:
        assert row["sent_as"] is not None
    assert (await spine.key(intent))["state"] == "completed"
