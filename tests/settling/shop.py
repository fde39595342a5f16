"""Contracts over the one bank: each test says what its provider promises, and counts what the bank was sent."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from fix_spine import KEYED, OUTCOME, PLACES, Spine

from idem.outbox.domain.contract import CancelRule, Contract, LookupRule
from idem.outbox.providers.cancels import Cancel
from idem.outbox.providers.outcome_rules import Condition, HeaderCondition, Rule, Says, statuses
from idem.outbox.values import json_pointer
from idem.testing.bank import BankAccount as BankAccount

HOUR, DAY = 3600, 86400
CANCEL = Cancel(path="/payments/cancel", body={"key": "{idem.key}"})
VOIDED = Rule(Says.REFUSED, body=(Condition(json_pointer.parse("/status"), ("canceled",)),), places=PLACES)
KEPT = Rule(Says.AMBIGUOUS_CACHED, status=statuses(500), headers=(HeaderCondition("idempotent-replayed", ("true",)),))
"""The provider says of a replay's failure that it comes out of its memory."""
NO_LOOKS = LookupRule()


def use(
    spine: Spine, contract: Contract | None = None, *, lookups: bool = True, kept: bool = False,
    kind: str = "keyed", operation: dict[str, Any] | None = None, **changes: Any,
) -> Contract:  # fmt: skip
    """The provider of this kind under another contract; `changes` are fields of the contract."""
    provider = spine.provider(kind)
    contract = replace(contract or provider.contract, **changes)
    if not lookups:
        contract = replace(contract, lookup=NO_LOOKS)
    spine.change(
        kind, contract=contract, lookups=provider.lookups if lookups else (),
        outcome=(KEPT, VOIDED, *OUTCOME) if kept else (VOIDED, *OUTCOME),
        cancels=None if contract.cancel is None else CANCEL,
    )  # fmt: skip
    spine.operate(f"pay.{kind}", **(operation or {}))
    spine.acceptor.operations, spine.acceptor.providers = spine.catalogue.operations, spine.catalogue.providers
    return contract


def cancelling(spine: Spine, *, blocks_late_requests: bool = False, **more: Any) -> Contract:
    """A provider that can be neither replayed nor looked at, but that cancels by key."""
    key = replace(KEYED.key, replay="success_only")
    return use(spine, **{"key": key, "cancel": CancelRule(blocks_late_requests), "lookups": False, **more})


def keyed(spine: Spine, **changes: Any) -> None:
    """The keyed provider has other fields from now on, for what is accepted too."""
    spine.change("keyed", **changes)
    spine.acceptor.providers = spine.catalogue.providers


def account(spine: Spine, **changes: Any) -> None:
    """The keyed account has other fields from now on."""
    keyed(spine, accounts={"keyed": replace(spine.provider("keyed").accounts["keyed"], **changes)})


def serve(spine: Spine, other: BankAccount) -> None:
    """Let the keyed provider be another account of the bank."""
    spine.bank.add_account(other)
    account(spine, credentials={"authorization": f"Bearer {other.token}"})


def sends(spine: Spine) -> list[str | None]:
    """The keys of all payments that were asked for, in order."""
    return [request.key for request in spine.bank.log.sends()]


def asked(spine: Spine, path: str, method: str = "POST") -> int:
    """How many requests of this kind the bank got."""
    return len([r for r in spine.bank.log.requests if (r.method, r.path.partition("?")[0]) == (method, path)])


def cancels(spine: Spine) -> int:
    return asked(spine, "/payments/cancel")


def count_lookups(spine: Spine) -> int:
    return len([r for r in spine.bank.log.requests if r.method == "GET"])


def standing(spine: Spine) -> int:
    """Payments that the bank has made and not called off."""
    voided = {r.payment for r in spine.bank.log.records if type(r).__name__ == "Voided"}
    return len([p for p in spine.bank.log.effects() if p.id not in voided])


async def lost(spine: Spine, key: str = "lost", fault: str = "act_then_drop", operation: str = "pay.keyed") -> UUID:
    """A call whose answer was lost: it is unknown."""
    intent = await spine.sent(key, operation=operation, faults=[fault])
    spine.bank.forget_script()
    assert (await spine.row(intent))["status"] == "unknown"
    return intent


async def paid(spine: Spine, key: str, operation: str = "pay.keyed") -> None:
    """A call that was completed a minute ago."""
    intent = await spine.sent(key, operation=operation)
    assert (await spine.key(intent))["state"] == "completed"
    await spine.advance(60)


async def stands(spine: Spine, intent: UUID, *why: str, letter: str = "reconcile_exhausted") -> None:
    """It is unknown, and a person reads these words in its one open dead letter."""
    await spine.expect(intent, status="unknown", letters=[letter])
    said = await spine.value("SELECT details ->> 'why' FROM idem.dead_letters WHERE resolved_at IS NULL")
    assert all(words in said for words in why), said


async def much_later(spine: Spine) -> None:
    """Everything that can be decided is; what goes back to work is sent."""
    for seconds in (60, 200, 200, 600, 4000, 4000, 90000, 90000):
        await spine.reconcile(after=seconds, hasten=True)
        await spine.work()
