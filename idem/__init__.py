"""idem: an effect in somebody else's system happens once, and idem knows when it cannot know.

    acceptor = idem.Acceptor.load()                  # reads idem.toml and IDEM_*; opens nothing
    with engine.begin() as connection:
        decision = acceptor.accept(connection, tenant, "payments.create", key, {"amount": 4200})

Names are handed on lazily (PEP 562): importing a subpackage loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_NAMES = {
    "Acceptor": "idem.outbox.accept",
    "Nudge": "idem.outbox.wakeup",
    "load": "idem.outbox.configuration",
    **dict.fromkeys(
        ("Accepted", "Decision", "Expired", "InProgress", "Mismatch", "NeedsOperator", "Replay", "Retrying", "Unknown"),
        "idem.outbox.decisions",
    ),
    **dict.fromkeys(("Answer", "Operation"), "idem.outbox.operation"),
    **dict.fromkeys(
        (
            "BodyInvalid",
            "ConfigError",
            "KeyInvalid",
            "ParamsInvalid",
            "RetryTransaction",
            "StoreUnavailable",
            "Unrenderable",
        ),
        "idem.outbox.errors",
    ),
}

__all__ = [
    "Accepted",
    "Acceptor",
    "Answer",
    "BodyInvalid",
    "ConfigError",
    "Decision",
    "Expired",
    "InProgress",
    "KeyInvalid",
    "Mismatch",
    "NeedsOperator",
    "Nudge",
    "Operation",
    "ParamsInvalid",
    "Replay",
    "RetryTransaction",
    "Retrying",
    "StoreUnavailable",
    "Unknown",
    "Unrenderable",
    "load",
]

if TYPE_CHECKING:
    from idem.outbox.accept import Acceptor
    from idem.outbox.configuration import load
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
        BodyInvalid,
        ConfigError,
        KeyInvalid,
        ParamsInvalid,
        RetryTransaction,
        StoreUnavailable,
        Unrenderable,
    )
    from idem.outbox.operation import Answer, Operation
    from idem.outbox.wakeup import Nudge


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'idem' has no attribute {name!r}")
