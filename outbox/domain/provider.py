"""A provider over HTTP, as the daemons see it: its contract, and the functions that read its answers. No I/O here.

All of it is pure; the sending is done by `idem.outbox.calls.lane`, which has large answers read in a thread. A
declarative table (`idem.outbox.config`) and Python code give the same thing.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from idem.outbox.domain.contract import Account, Contract, FrozenRequest, ProviderRequest, Response
from idem.outbox.domain.outcomes import LookupOutcome, Outcome, Proof, Seen
from idem.outbox.domain.webhook import Event, Webhook


@dataclass(frozen=True, slots=True)
class Question:
    """What a look-up may ask with: the provider key, and the provider's own reference where it is known.

    `sent_at`: POSIX seconds of the first send, by the database's clock; None where nothing was sent. `method`, `path`
    and `headers` are those of the frozen request: a header may say whose the object is, and the question says it too.
    `carried`: the request carries the key as the contract of now says; `named`: it names the key in its path or body.
    Without these an answer "nothing" under the key says nothing about it. `earlier_keys`: provider keys of earlier
    generations, which count as ours. `asked_at`: when it is asked, in POSIX seconds. The daemons give the database's
    clock, because a look that comes too late proves nothing; only a test or a program without a database takes this
    machine's.
    """

    provider_key: str
    reference: str | None
    awaiting: bool
    sent_at: float | None = None
    method: str = ""
    path: str = ""
    earlier_keys: tuple[str, ...] = ()
    asked_at: float = field(default_factory=time.time)
    carried: bool = True
    named: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key that names this call."""
        return (self.provider_key, *self.earlier_keys)


@dataclass(frozen=True, slots=True)
class Item:
    """One object of the provider's own list, for the ledger check.

    `key`: the provider key that it carries. `ours`: it carries this deployment's tag; None where the contract has no
    tag. `said`: the proof in it, None where no rule knows its state. `created`: POSIX seconds, if it says so. `kind`:
    what kind of object it is, where the contract has kinds (`Provider.kind`).
    """

    reference: str | None
    key: str | None = None
    said: Proof | None = None
    status: str | None = None
    created: float | None = None
    ours: bool | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the provider's list, and the request for the next one; None: it was the last.

    `broken`: why the list goes on and cannot be followed, so that the pages so far are not all of it.
    """

    items: tuple[Item, ...]
    following: FrozenRequest | None = None
    broken: str = ""


class Provider(Protocol):
    """What one provider is to the daemons."""

    @property
    def contract(self) -> Contract: ...

    @property
    def accounts(self) -> Mapping[str, Account]: ...

    def freeze(self, request: ProviderRequest, provider_key: str) -> FrozenRequest:
        """The bytes that will be sent: the key is in its header or body field. Raises Unrenderable."""
        ...

    def classify(self, response: Response) -> tuple[Outcome, Seen]:
        """What a response to a write says; what no rule matches is Ambiguous. Never raises."""
        ...

    def questions(self, question: Question) -> tuple[FrozenRequest, ...]:
        """The look-up requests to make, best first; empty if this row cannot be asked about. Never raises."""
        ...

    def read_lookup(
        self, response: Response, question: Question, request: FrozenRequest | None = None
    ) -> tuple[LookupOutcome, Seen]:
        """What the response to a look-up says. Never raises.

        `request` is the one of `questions` that was answered, or a page of it; without it, an answer that several
        look-ups would read differently is CouldNotAsk. `Absent` speaks of this page alone while `next_page` has one.
        """
        ...

    def next_page(self, response: Response, question: Question, request: FrozenRequest) -> FrozenRequest | None:
        """The next page, until one shows the newest of it; None: nothing more is needed, or there is none.

        A list that goes on and cannot be followed is CouldNotAsk in `read_lookup`. Never raises.
        """
        ...

    def cancel(self, question: Question) -> FrozenRequest | None:
        """The request that voids everything that was sent under the key; None: the provider has none."""
        ...

    def read_cancel(self, response: Response, question: Question) -> tuple[LookupOutcome, Seen]:
        """What its answer says: `Absent`: nothing stands or will stand under the key. Never raises."""
        ...

    def listing(self, since: float, until: float) -> FrozenRequest | None:
        """The first page of all objects made between two times (POSIX seconds); None: they cannot be listed."""
        ...

    def read_listing(self, response: Response, request: FrozenRequest) -> Page | None:
        """The objects of a page; None for an answer that is none. Never raises."""
        ...

    @property
    def webhook(self) -> Webhook | None:
        """How its events are verified; None where it sends none."""
        ...

    def account_check(self) -> FrozenRequest | None:
        """The question whose account the credentials are; None: it cannot be asked."""
        ...

    def read_account(self, response: Response) -> str | None:
        """What names the account in its answer; None for an answer that does not. Never raises."""
        ...

    def kind(self, path: str) -> str | None:
        """The kind of object that a call to this path is about, where one call makes several; None: every kind."""
        ...

    def read_events(self, body: bytes) -> tuple[Event, ...] | None:
        """What a verified delivery says; several for a batch; None for a body that is none. Never raises."""
        ...
