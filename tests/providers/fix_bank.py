"""One provider, as from an idem.toml, for the tests of this folder."""

import json
from dataclasses import replace
from typing import Any

from idem.outbox.domain.contract import Account, Contract, KeyRule, LookupRule, Response
from idem.outbox.providers.errors import ErrorShape
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.lookups import ById, ByReference
from idem.outbox.providers.outcome_rules import Condition, Rule, RulePlaces, Says, statuses

PLACES = RulePlaces(reference=("id",), status=("status",), fields={"amount": ("amount",)})
ERRORS = ErrorShape(shape="/error/code", code="/error/code", message="/error/message", reference="/id")


def said(says: Says, *words: str, status: object = "2xx") -> Rule:
    return Rule(says, statuses(status), (Condition(("status",), words),), places=PLACES)


RULES = (
    said(Says.FINAL, "succeeded"),
    said(Says.ANSWER, "requires_action"),
    said(Says.PENDING, "processing"),
    said(Says.REFUSED, "declined", status=["2xx", "4xx"]),
)

LOOKUPS = (
    ById(path="/payments/{idem.reference}", absent=404),
    ByReference(path="/payments?reference={idem.key}", object="/data/0", match="/reference", empty="/data"),
)


def bank(**changes: Any) -> HttpProvider:
    """The bank's provider; `contract`, `outcome`, `errors` and `lookups` replace its own."""
    contract = Contract(
        "bank",
        KeyRule("header", "Idempotency-Key", "stored", 86400, 1020),
        LookupRule(by_reference=True, by_id=True, horizon=60),
        deployment="production",
    )
    provider = HttpProvider(contract, {"main": Account("main", "https://bank.example")}, RULES, ERRORS, LOOKUPS)
    return replace(provider, **changes)


def answered(status: int, body: object = b"", complete: bool = True, **headers: str) -> Response:
    """A response; the names of headers have `_` for `-`."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, content, complete)


def error(code: str = "invalid", message: str = "No.", **more: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}, **more}
