"""The contracts of the matrix, each with the account of the bank that keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fix_spine import BY_ID, ERRORS, OUTCOME, PLACES, P, lookup
from fix_webhooks import READER, SCHEME, secret
from settling.shop import CANCEL, KEPT, VOIDED

from idem.outbox.domain.contract import (
    Account,
    CancelRule,
    Contract,
    EventRule,
    KeyRule,
    LookupRule,
    ProviderRequest,
)
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.domain.webhook import Webhook
from idem.outbox.providers.contract_checks import check, completed
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.outcome_rules import Condition, Rule, Says
from idem.outbox.providers.template import KEY_TEXT
from idem.testing.bank import BankAccount as BankAccount
from idem.testing.bank import CancelByKey
from idem.testing.bank import SecondRequest as BankReplay

Replay = Literal["stored", "current", "success_only", "none"]
REPLAYS: tuple[Replay, ...] = ("stored", "current", "success_only", "none")

DEADLINE, FLIGHT, PAUSE = 1.0, 60.0, 120.0
RETENTION, MARGIN = 3600.0, FLIGHT + PAUSE
LAG, HORIZON, AGREE = 20.0, 90.0, 2
"""The bank shows a payment in its lists after the lag, and what it rolls forward after a minute: before the horizon."""

ACTION = Rule(Says.ANSWER, body=(Condition(P("/status"), ("requires_action",)),), places=PLACES)
LOOKUPS = LookupRule(by_key=True, by_id=True, horizon=HORIZON, agree=AGREE)
BY_ID_ALONE = LookupRule(by_id=True, horizon=HORIZON, agree=AGREE)
BASE = Contract(
    "", lookup=LOOKUPS, connect_timeout=DEADLINE, deadline=DEADLINE, flight_limit=FLIGHT, pause_allowance=PAUSE,
    schedule=(5, 30, 120, 600, 3600), pending_schedule=(5, 30, 600), pending_limit=86400, answers=True,
    throttles_before_execution=True, event_rule=EventRule(redelivery=3000),
)  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """A provider of the matrix. `bank`: members of its accounts there."""

    name: str
    replay: Replay
    contract: Contract
    bank: Mapping[str, Any] = field(default_factory=dict)

    @property
    def retention(self) -> float:
        """Seconds after the first send at which the last replay may arrive."""
        return self.contract.key.retention - self.contract.key.margin

    def bank_account(self, account: str, url: str | None) -> BankAccount:
        """The bank's side; `url`: where its events go."""
        return BankAccount(
            account, f"{account}-token", replay=BankReplay(self.replay), retention=RETENTION, lookup_lag=LAG,
            webhook_url=url, webhook_secret=secret(account), **self.bank,
        )  # fmt: skip

    def provider(self, origin: str, accounts: list[str], webhooks: bool) -> HttpProvider:
        """Our side, with its accounts. Raises AssertionError if start-up would refuse the contract."""
        contract = completed(replace(self.contract, provider=self.name, events_settle=webhooks))
        found = check(contract, lease=30, margin=1, events=webhooks)
        assert not [each for each in found if each.level == "error"], found
        keyless = contract.key.carrier == "none"
        ways = (BY_ID,) if contract.lookup.by_id else ()
        ways += (lookup("reference" if keyless else "key"),) if contract.lookup.possible else ()
        provider = HttpProvider(
            contract,
            {name: Account(name, origin, {"authorization": f"Bearer {name}-token"}) for name in accounts},
            (*((KEPT,) if self.replay == "stored" else ()), VOIDED, ACTION, *OUTCOME),
            ERRORS,
            ways,
            cancels=None if contract.cancel is None else CANCEL,
        )
        if not webhooks:
            return provider
        secrets = {name: (SCHEME.parse_secret(secret(name)),) for name in accounts}
        reader = READER.model_copy(update={"key": (P("/data/reference"),)}) if keyless else READER
        return replace(provider, webhook=Webhook(SCHEME, secrets), events=reader)

    def operation_of(self, account: str, base: OperationSpec) -> OperationSpec:
        """A payment through this account."""

        def request(params: Any) -> ProviderRequest:
            body = {"amount": params["amount"], "currency": "eur"}
            reference = {"reference": KEY_TEXT} if self.contract.key.carrier == "none" else {}
            return ProviderRequest("POST", "/payments", json=body | reference)

        return replace(
            base, name=f"pay.{account}", provider=self.name, account=account, request=request, give_up_after=10 * 86400
        )


def variant(replay: Replay, name: str = "", *, lookups: bool = True, **changes: Any) -> Variant:
    """The bank with this replay, as its contract has it; `changes` are fields of the contract."""
    keyless = replay == "none"
    key = KeyRule() if keyless else KeyRule("header", "idempotency-key", replay, RETENTION, MARGIN)
    rule = replace(LOOKUPS, by_key=not keyless, by_reference=keyless) if lookups else LookupRule()
    return Variant(name or replay, replay, replace(BASE, **{"key": key, "lookup": rule, **changes}))


PLAIN: Mapping[Replay, Variant] = {replay: variant(replay) for replay in REPLAYS}


def cancelling(replay: Replay, *, blocks_late_requests: bool, name: str = "", **more: Any) -> Variant:
    """The bank calls payments off by their key, and shows them by their own id alone, unless `more` says otherwise.

    So nothing lost can be asked about, but an event that comes after a cancel can (start-up refuses it otherwise).
    """
    name = name or f"{replay}-{'stones' if blocks_late_requests else 'cancel'}"
    known = variant(replay, name, cancel=CancelRule(blocks_late_requests), **{"lookup": BY_ID_ALONE, **more})
    return replace(known, bank={"cancel": CancelByKey(blocks_late_requests=blocks_late_requests)})


CANCEL_FIRST = cancelling(
    "success_only",
    blocks_late_requests=True,
    name="cancel-first",
    lookup=LOOKUPS,
    strategies=("cancel_by_key", "lookup"),
)
"""What was called off can be looked at, so that an event which comes after the cancel can be confirmed."""


LATE = replace(
    variant("success_only", "late", late_effects=True, cancel=CancelRule(blocks_late_requests=True)),
    bank={"cancel": CancelByKey(blocks_late_requests=True)},
)
"""After a 5xx the effect may come later than any horizon: only a cancel that blocks late requests settles it."""

MUTE = variant("none", "mute", lookups=False)
"""Nothing can be asked and nothing sent again: without an event a person decides (hazard 39)."""
