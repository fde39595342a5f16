"""Every exception that idem raises on purpose. All of them are an `IdemError`."""

from idem.application.misuse import InTransaction, Misuse, NotCommitted, NoTransaction, NotStored, OutOfOrder
from idem.outbox.values.errors import (
    AcceptPaused,
    BodyInvalid,
    ConfigError,
    IdemError,
    KeyInvalid,
    LeaseTooShort,
    NotTaken,
    OperatorRefused,
    ParamsInvalid,
    RetryTransaction,
    StoreUnavailable,
    Unrenderable,
    Unserved,
)

__all__ = [
    "AcceptPaused",
    "BodyInvalid",
    "ConfigError",
    "IdemError",
    "InTransaction",
    "KeyInvalid",
    "LeaseTooShort",
    "Misuse",
    "NoTransaction",
    "NotCommitted",
    "NotStored",
    "NotTaken",
    "OperatorRefused",
    "OutOfOrder",
    "ParamsInvalid",
    "RetryTransaction",
    "StoreUnavailable",
    "Unrenderable",
    "Unserved",
]
