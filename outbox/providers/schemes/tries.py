"""How many secrets may be tried for one delivery: the sender is not known, and each secret costs a look at the body."""

from collections.abc import Iterable, Mapping
from typing import Final

from idem.outbox.providers.schemes.ed25519 import PublicKey

MOST_TRIES: Final = 100
"""At one address, of all accounts whose events come in there."""

MOST_SECRETS: Final = 10
"""Of one account. Two are active while one is changed."""

PUBLIC_KEY: Final = 5
"""Tries that a public key counts as: up to three signatures are checked under it, each by slow arithmetic."""


def tries(secrets: Mapping[str, Iterable[bytes]]) -> int:
    """What a delivery to an address costs at most that tries these secrets, by account."""
    return sum(PUBLIC_KEY if isinstance(key, PublicKey) else 1 for keys in secrets.values() for key in keys)
