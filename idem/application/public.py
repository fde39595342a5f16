"""The names that `idem` itself exports, and where they are."""

from idem.application.app import Idem
from idem.application.call import AsyncCall, Call
from idem.application.misuse import Misuse
from idem.application.operation import Operation
from idem.application.replies import response
from idem.outbox.domain.contract import ProviderRequest as Request
from idem.outbox.domain.decisions import Decision
from idem.outbox.domain.operation import Answer
from idem.outbox.handlers.handler import Settled
from idem.outbox.values.errors import (
    ConfigError,
    IdemError,
    KeyInvalid,
    ParamsInvalid,
    RetryTransaction,
    StoreUnavailable,
)

__all__ = [
    "Answer",
    "AsyncCall",
    "Call",
    "ConfigError",
    "Decision",
    "Idem",
    "IdemError",
    "KeyInvalid",
    "Misuse",
    "Operation",
    "ParamsInvalid",
    "Request",
    "RetryTransaction",
    "Settled",
    "StoreUnavailable",
    "response",
]
