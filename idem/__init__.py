"""idem: an effect in somebody else's system happens once, and idem knows when it cannot know.

    from idem import Idem

    idem = Idem()                                    # reads idem.toml and IDEM_*; opens nothing
    charge = idem.operation("payments.create", Charge, provider="ledger", request=…, answer=…)

Names are handed on lazily (PEP 562): importing a subpackage loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_MODULES = {
    "idem.outbox.application.auditing": "Unprotected",
    "idem.outbox.application.idem": "Idem",
    "idem.outbox.application.calls": "Call SyncCall",
    "idem.outbox.application.effects": "Effect",
    "idem.outbox.application.inline": "AsyncInlineCall InlineCall",
    "idem.outbox.application.misuse": "InTransaction Misuse NoTransaction NotCommitted NotStored OutOfOrder",
    "idem.outbox.application.replies": "response",
    "idem.outbox.configuration": "load",
    "idem.outbox.decisions": "Accepted Decision Expired InProgress Mismatch NeedsOperator Replay Retrying Unknown",
    "idem.outbox.errors": (
        "AcceptPaused BodyInvalid ConfigError IdemError KeyInvalid ParamsInvalid Refusal RetryTransaction "
        "StoreUnavailable Unrenderable Unserved LeaseTooShort"
    ),
    "idem.outbox.handlers": "Settled",
    "idem.outbox.operation": "Answer",
    "idem.outbox.outcomes": "Absent Ambiguous CouldNotAsk NotExecuted Pending Refused Succeeded",
    "idem.outbox.provider": "Question",
    "idem.outbox.sending": "SendRequest Sending",
}
_NAMES = {name: (module, name) for module, names in _MODULES.items() for name in names.split()}
_NAMES["Request"] = ("idem.outbox.contract", "ProviderRequest")
_INSIDE = "idem.reconciler.webhooks.inside"
"""What `Idem` needs of a package that its own may not know."""

__all__ = [
    "Absent",
    "AcceptPaused",
    "Accepted",
    "Ambiguous",
    "Answer",
    "AsyncInlineCall",
    "BodyInvalid",
    "Call",
    "ConfigError",
    "CouldNotAsk",
    "Decision",
    "Effect",
    "Expired",
    "Idem",
    "IdemError",
    "InProgress",
    "InTransaction",
    "InlineCall",
    "KeyInvalid",
    "LeaseTooShort",
    "Mismatch",
    "Misuse",
    "NeedsOperator",
    "NoTransaction",
    "NotCommitted",
    "NotExecuted",
    "NotStored",
    "OutOfOrder",
    "ParamsInvalid",
    "Pending",
    "Question",
    "Refusal",
    "Refused",
    "Replay",
    "Request",
    "RetryTransaction",
    "Retrying",
    "SendRequest",
    "Sending",
    "Settled",
    "StoreUnavailable",
    "Succeeded",
    "SyncCall",
    "Unknown",
    "Unprotected",
    "Unrenderable",
    "Unserved",
    "load",
    "response",
]

if TYPE_CHECKING:
    from idem.outbox.application.auditing import Unprotected
    from idem.outbox.application.calls import Call, SyncCall
    from idem.outbox.application.effects import Effect
    from idem.outbox.application.idem import Idem
    from idem.outbox.application.inline import AsyncInlineCall, InlineCall
    from idem.outbox.application.misuse import (
        InTransaction,
        Misuse,
        NotCommitted,
        NoTransaction,
        NotStored,
        OutOfOrder,
    )
    from idem.outbox.application.replies import response
    from idem.outbox.configuration import load
    from idem.outbox.contract import ProviderRequest as Request
    from idem.outbox.decisions import (
        Accepted,
        Decision,
        Expired,
        InProgress,
        Mismatch,
        NeedsOperator,
        Replay,
        Retrying,
        Unknown,
    )
    from idem.outbox.errors import (
        AcceptPaused,
        BodyInvalid,
        ConfigError,
        IdemError,
        KeyInvalid,
        LeaseTooShort,
        ParamsInvalid,
        Refusal,
        RetryTransaction,
        StoreUnavailable,
        Unrenderable,
        Unserved,
    )
    from idem.outbox.handlers import Settled
    from idem.outbox.operation import Answer
    from idem.outbox.outcomes import Absent, Ambiguous, CouldNotAsk, NotExecuted, Pending, Refused, Succeeded
    from idem.outbox.provider import Question
    from idem.outbox.sending import Sending, SendRequest


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        module, there = _NAMES[name]
        return getattr(import_module(module), there)
    if name == "_events_inside":
        return import_module(_INSIDE)
    raise AttributeError(f"module 'idem' has no attribute {name!r}")
