"""What an attempt or a look-up showed: a closed union of values, so that every `match` over it is total.

`Succeeded`, `Refused` and `Pending` prove that the provider has the object, from every source. Everything else
speaks of its own attempt or question only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Fields: TypeAlias = Mapping[str, Any]
"""Named values that the contract takes out of the provider's answer; what `answer(outcome)` may use."""

WhyNot: TypeAlias = Literal["transport", "throttled", "config", "request", "given_back", "caller"]


@dataclass(frozen=True, slots=True)
class ProviderObject:
    """What the provider shows of an object. `status`: the provider's own word for its state. `steps`: where it is the
    end of a flow, the ends of all its steps, by their names."""

    reference: str | None
    status: str | None = None
    fields: Fields = field(default_factory=dict)
    steps: Mapping[str, Any] = field(default_factory=dict, kw_only=True, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Succeeded(ProviderObject):
    """The effect exists. `interim`: the object exists, but it is not at its end (a status that the contract calls
    `answer`)."""

    interim: bool = False

    @property
    def succeeded(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Refused(ProviderObject):
    """The provider decided against this effect (a decline): not against our request."""

    @property
    def succeeded(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Pending(ProviderObject):
    """The provider's own word that it has accepted and is working."""


@dataclass(frozen=True, slots=True)
class NotExecuted:
    """This attempt is proven not executed.

    transport: nothing left us. throttled: the contract says that the limiter stands before execution. config: our
    credentials, address or a proxy; says nothing about this row. request: the provider refuses this request as it
    is. given_back: the claim ended before the call began. caller: the word of the code that makes the call of an inline
    operation. `retry_after` in seconds, as the provider asked for it.
    """

    why: WhyNot
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """It may have happened. The default: what nothing else explains is this.

    `cached`: the provider has stored this answer under the key, so that a replay gets it again and again: the replays
    end, and the key is burned.
    """

    cached: bool = False


@dataclass(frozen=True, slots=True)
class Absent:
    """The provider says that it has nothing. Counts towards a verdict, proves nothing alone."""


@dataclass(frozen=True, slots=True)
class CouldNotAsk:
    """The question failed: counts as nothing and uses up no look."""

    retry_after: float | None = None


Proof: TypeAlias = Succeeded | Refused | Pending
Outcome: TypeAlias = Succeeded | Refused | Pending | NotExecuted | Ambiguous
LookupOutcome: TypeAlias = Succeeded | Refused | Pending | Absent | CouldNotAsk


@dataclass(frozen=True, slots=True)
class Seen:
    """The observation behind an outcome, for the evidence: never credentials.

    `error` is the class of an exception, `note` a short text for people; `started` is whether bytes of the request
    may have left. `elapsed` is in seconds. `copies`: how many objects a look-up showed for one call. `message`: the
    provider's own words about a failure; `body`: the beginning of that answer. Both are redacted, for people alone, and
    kept beside the evidence for a shorter time.
    """

    http_status: int | None = None
    error: str | None = None
    note: str | None = None
    code: str | None = None
    started: bool = False
    elapsed: float | None = None
    copies: int = 0
    message: str | None = None
    body: str | None = None

    @property
    def why(self) -> str:
        """One line for a log: the note (else the error's class), and the status."""
        said = self.note or self.error or "no reason is known"
        return said if self.http_status is None else f"{said} (HTTP {self.http_status})"


def name(outcome: Outcome | LookupOutcome) -> str:
    """The word for an outcome in evidence, logs and metrics."""
    match outcome:
        case Succeeded(interim=True):
            return "interim"
        case Succeeded():
            return "succeeded"
        case Refused():
            return "refused"
        case Pending():
            return "pending"
        case NotExecuted(why=why):
            return f"not_executed:{why}"
        case Ambiguous(cached=True):
            return "ambiguous:cached"
        case Ambiguous():
            return "ambiguous"
        case Absent():
            return "absent"
        case CouldNotAsk():
            return "could_not_ask"


def proof(word: str, reference: str | None, status: str | None, fields: Fields) -> Proof:
    """The proof that was stored under this word. Raises ValueError for a word that is not a proof's."""
    match word:
        case "interim":
            return Succeeded(reference, status, fields, interim=True)
        case "succeeded":
            return Succeeded(reference, status, fields)
        case "refused":
            return Refused(reference, status, fields)
        case "pending":
            return Pending(reference, status, fields)
        case _:
            raise ValueError(f"{word!r} does not prove that the provider has the object")


Failure: TypeAlias = Literal[
    "none", "given_back", "throttled", "server_error", "client_error", "redirect", "unreadable",
    "no_connection", "timeout", "connection_lost", "other",
]  # fmt: skip
LOST = frozenset({"ReadError", "WriteError", "CloseError", "RemoteProtocolError", "LocalProtocolError"})


def failure(outcome: Outcome, seen: Seen) -> Failure:
    """The class of what went wrong with a call; `unreadable`: a success whose body could not be understood."""
    match outcome:
        case Succeeded() | Refused() | Pending():
            return "none"
        case NotExecuted(why="given_back"):
            return "given_back"
        case NotExecuted() | Ambiguous():
            pass
    if seen.http_status is not None:
        return _failed_status(seen.http_status)
    error = seen.error or ""
    if isinstance(outcome, NotExecuted) and outcome.why == "transport":
        return "no_connection"
    if "Timeout" in error:
        return "timeout"
    return "connection_lost" if error in LOST else "other"


def _failed_status(status: int) -> Failure:
    if status == 429:
        return "throttled"
    if status >= 500:
        return "server_error"
    if status >= 400:
        return "client_error"
    return "redirect" if status >= 300 else "unreadable"
