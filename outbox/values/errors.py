"""Every exception that idem raises on purpose.

    IdemError
    ├── ConfigError          a setting is wrong: names it and what to do
    ├── KeyInvalid           the idempotency key is missing or not usable
    ├── BodyInvalid          the body cannot be held exactly (NaN, NUL, duplicate member ...)
    ├── ParamsInvalid        valid JSON that the operation refuses
    ├── Unrenderable         the provider request cannot be built from these params
    ├── RetryTransaction     SQLSTATE 40001: run the caller's transaction again
    ├── StoreUnavailable     the database cannot answer now; nothing was written, nothing was sent
    │   └── AcceptPaused     an operator has paused this provider; nothing was written, nothing was sent
    ├── Unserved             a key at rest whose call nobody would make; nothing was written
    ├── OperatorRefused      an operator's command is not possible now: says why and what to do
    ├── WebhookRefused       a provider's event that is not genuine or not configured: answer it 401
    └── LeaseTooShort        the last check: proven not sent

The text of each is for the person who reads it: what happened, which setting or row, what to do now.
"""

from uuid import UUID


class IdemError(Exception):
    """Base of all errors of idem."""


class ConfigError(IdemError):
    """One or more settings are wrong. `problems` holds one line each, with the setting's path."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class KeyInvalid(IdemError):
    """The idempotency key is missing or not 1 to 255 visible ASCII characters."""


class BodyInvalid(IdemError):
    """A value that PostgreSQL or JSON cannot hold exactly; `pointer` (RFC 6901) names the culprit."""

    def __init__(self, message: str, pointer: str = "") -> None:
        self.message = message
        self.pointer = pointer
        super().__init__(f"{message} (at {pointer or 'the top'})")


class ParamsInvalid(IdemError):
    """Valid JSON that the operation's schema refuses. `problems`: (JSON pointer, message) pairs."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{pointer or 'the top'}: {message}" for pointer, message in problems))


class Unrenderable(IdemError):
    """The provider request cannot be built from these params."""


class RetryTransaction(IdemError):
    """A REPEATABLE READ or SERIALIZABLE transaction of the caller met a concurrent accept: run it again."""


class StoreUnavailable(IdemError):
    """The database cannot answer now: nothing was written, nothing was sent. Try again with the same key."""


class AcceptPaused(StoreUnavailable):
    """An operator has paused accept for this provider, or the calls that an inline caller would make.

    Nothing was written, nothing was sent; the caller's transaction is to be rolled back. Answer it like any
    StoreUnavailable, 503 with Retry-After: the same request with the same key works when it is resumed. Retries of keys
    that are known are answered all the time.
    """


class Unserved(IdemError):
    """The client's retry of a key at rest, whose call no worker would make: its operation is not configured here, or
    goes to another provider or account now. Nothing was written; answer it 503: nothing happened."""

    def __init__(self, intent: UUID) -> None:
        self.intent_id = intent
        super().__init__(
            f"intent {intent} is at rest: nothing happened at the provider, which is proven, and no worker would make "
            "its call, because its operation is not configured here, or uses another provider or account than its "
            "call was made for. Nothing was written. Configure the operation as it was and send the same request with "
            f"the same key again, or run `idem intents cancel {intent}`"
        )


class OperatorRefused(IdemError):
    """An operator's command that is not possible now."""


class WebhookRefused(IdemError):
    """A delivery that idem refuses: not genuine, not readable or not configured. `reason` is a word for a metric."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


class LeaseTooShort(IdemError):
    """Raised before the first byte when the call's deadline no longer fits into the lease: proven not sent."""


def one_line(error: BaseException, most: int = 300) -> str:
    """The text of an error in one line: a database with several hosts reports each of them."""
    said = " ".join(str(error).split()) or type(error).__name__
    return said if len(said) <= most else said[: most - 1] + "…"
