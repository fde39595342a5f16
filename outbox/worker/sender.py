"""As whom this process sends and asks now: a number that a row keeps of its first send (`outbox.sent_as`).

The upper half is the credentials, or the account where the provider has confirmed whose they are (`account_check`); the
lower half the rules by which a call is found, and where a cancel by key goes. "Not found" is believed, and a call is
sent again, where both are as they were, or where a payment that was sent like the row is found now
(`idem.reconciler.control_question`). A cancel goes where it would have gone when the row was sent, or is not made.
"""

from typing import Any, Final

from psycopg import AsyncConnection

from idem.outbox.database import installation
from idem.outbox.domain.provider import Provider
from idem.outbox.providers import sender_identity
from idem.outbox.worker.account_check import AccountWatch

CREDENTIALS: Final = "the credentials or the headers of the account"
LOOKUPS: Final = "the rules of its look-ups"
CANCEL: Final = "the request of its cancel by key"
SENT_BY_OTHERS: Final = f"not sent again: {CREDENTIALS} have changed"
"""The note of a call that a worker gives back, because an earlier send of it may count."""


def who(sent_as: int) -> int:
    """The half that says as whom."""
    return sent_as >> sender_identity.BITS


class Sender:
    """One for each lane of a daemon."""

    def __init__(self, provider: Provider, check: AccountWatch) -> None:
        self._check = check
        self._ways = sender_identity.ways(provider)
        self._secret: bytes | None = None
        self._known: tuple[str, str | None, list[int]] | None = None

    async def ready(self, connection: AsyncConnection[Any]) -> int | None:
        """As `now`; reads the installation's secret first, once. Raises what an unreachable database raises."""
        if self._secret is None:
            self._secret = await installation.secret(connection)
        return self.now()

    def now(self) -> int | None:
        """As whom a call leaves now; None where the credentials cannot be read, so that none can leave."""
        if not (same := self.same()):
            return None
        return same[-1] << sender_identity.BITS | self._ways

    def same(self) -> list[int]:
        """The senders that are this one: by its credentials, and last by its account where that is confirmed."""
        if self._secret is None or (shown := self._check.credentials.now()) is None:
            return []
        identity = self._check.identity(shown)
        if self._known is None or self._known[:2] != (shown, identity):
            texts = [shown] if identity is None else [shown, f"account {identity}"]
            digests = [sender_identity.secret_digest(text, self._secret) for text in texts]
            self._known = shown, identity, digests
        return self._known[2]

    def is_now(self, sent_as: int | None) -> bool:
        """Whether what leaves now leaves as this sender."""
        return self.now() is None if sent_as is None else who(sent_as) in self.same()

    def changed(self, sent_as: int | None) -> tuple[str, ...]:
        """What is not any more as it was when a row was sent. Nothing where that is not known: of a row without a
        sender, and while the credentials cannot be read, so that no call and no question can leave."""
        if sent_as is None or not (same := self.same()):
            return ()
        sender_is_other = who(sent_as) not in same
        ways = sent_as & (1 << sender_identity.BITS) - 1
        lookups_are_others = ways >> sender_identity.CANCEL_BITS != self._ways >> sender_identity.CANCEL_BITS
        return (CREDENTIALS,) * sender_is_other + (LOOKUPS,) * lookups_are_others

    def cancels_elsewhere(self, sent_as: int | None) -> bool:
        """Whether a cancel would go elsewhere now than when a row was sent: there the provider may not know the call,
        and truthfully says that nothing stands. A row that was sent before there was a cancel may be cancelled."""
        then = 0 if sent_as is None else sent_as & (1 << sender_identity.CANCEL_BITS) - 1
        return then not in (0, self._ways & (1 << sender_identity.CANCEL_BITS) - 1)
