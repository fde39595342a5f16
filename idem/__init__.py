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
    "idem.application.audit": "Unprotected",
    "idem.application.app": "Idem",
    "idem.application.call": "Call SyncCall",
    "idem.application.operation": "Effect",
    "idem.application.inline": "AsyncInlineCall InlineCall",
    "idem.application.misuse": "InTransaction Misuse NoTransaction NotCommitted NotStored OutOfOrder",
    "idem.application.replies": "response",
    "idem.outbox.config": "load",
    "idem.outbox.domain.decisions": (
        "Accepted Decision Expired InProgress Mismatch NeedsOperator Replay Retrying Unknown"
    ),
    "idem.outbox.values.errors": (
        "AcceptPaused BodyInvalid ConfigError IdemError KeyInvalid ParamsInvalid Refusal RetryTransaction "
        "StoreUnavailable Unrenderable Unserved LeaseTooShort"
    ),
    "idem.outbox.handlers": "Settled",
    "idem.outbox.domain.operation": "Answer",
    "idem.outbox.domain.outcomes": "Absent Ambiguous CouldNotAsk NotExecuted Pending Refused Succeeded",
    "idem.outbox.domain.provider": "Question",
    "idem.outbox.domain.sending": "SendRequest Sending",
}
_NAMES = {name: (module, name) for module, names in _MODULES.items() for name in names.split()}
_NAMES["Request"] = ("idem.outbox.domain.contract", "ProviderRequest")

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
    from idem.application.app import Idem
    from idem.application.audit import Unprotected
    from idem.application.call import Call, SyncCall
    from idem.application.inline import AsyncInlineCall, InlineCall
    from idem.application.misuse import (
        InTransaction,
        Misuse,
        NotCommitted,
        NoTransaction,
        NotStored,
        OutOfOrder,
    )
    from idem.application.operation import Effect
    from idem.application.replies import response
    from idem.outbox.config import load
    from idem.outbox.domain.contract import ProviderRequest as Request
    from idem.outbox.domain.decisions import (
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
    from idem.outbox.domain.operation import Answer
    from idem.outbox.domain.outcomes import (
        Absent,
        Ambiguous,
        CouldNotAsk,
        NotExecuted,
        Pending,
        Refused,
        Succeeded,
    )
    from idem.outbox.domain.provider import Question
    from idem.outbox.domain.sending import Sending, SendRequest
    from idem.outbox.handlers import Settled
    from idem.outbox.values.errors import (
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


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        module, there = _NAMES[name]
        return getattr(import_module(module), there)
    raise AttributeError(f"module 'idem' has no attribute {name!r}")
