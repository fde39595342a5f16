"""As whom a provider sees the calls of an account, and how it is asked about them: both as text to be digested. Pure,
but for the file of a token that is renewed.

A call that was sent under other credentials may be another account's, of which today's credentials see nothing; and one
that is asked about by other rules may not be found though it is there (docs/decisions/0040).
"""

import dataclasses
import enum
import hashlib
import hmac
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from pydantic import BaseModel

from idem.outbox.domain.contract import Account, Signer
from idem.outbox.domain.provider import Provider
from idem.outbox.providers.outcome_rules import Says
from idem.outbox.providers.signing import RenewedToken, Signers

BITS: Final = 31
"""Of each digest: two of them and no sign fit into a bigint."""
CANCEL_BITS: Final = 13
"""Of the lower half: the way of the cancel has these, the rules of the look-ups the others. No attacker chooses
these texts, so some thousand changes pass before one is not seen."""
COST: Final = 2**12
"""Of scrypt: some milliseconds, once for each credential in each process."""

MOST: Final = 64
"""Digests that a process keeps: a token may be renewed for as long as it lives."""

LOOKUPS: Final = ("lookups", "event_lookup", "object_types", "headers")
"""What of a provider decides whether a question shows a call."""


@lru_cache(MOST)
def secret_digest(text: str, secret: bytes) -> int:
    """A number below 2**31 that says whether two texts are the same, and nothing else about them.

    `secret`: the installation's. A password may be short; one who reads the number alone must not be able to guess it.
    """
    salt = hmac.digest(secret, b"sent_as", "sha256")
    return _number(hashlib.scrypt(text.encode(), salt=salt, n=COST, r=8, p=1, dklen=4))


@lru_cache(MOST)
def digest(text: str) -> int:
    """The same number for a text that is not a secret."""
    return _number(hashlib.sha256(text.encode()).digest())


def _number(found: bytes) -> int:
    return int.from_bytes(found[:4]) >> (32 - BITS)


class SenderCredentials:
    """What the calls of an account prove themselves with.

    `renewed`: it can become something else while the process lives. Else it is put together once, because each claim
    and each call asks for it.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self.renewed = any(isinstance(each, RenewedToken) for each in _signers(account.signer))
        self._kept = None if self.renewed else self._read()

    def now(self) -> str | None:
        """None where it cannot be read, so that no call can leave either."""
        return self._read() if self.renewed else self._kept

    def _read(self) -> str | None:
        headers = sorted((name.lower(), value) for name, value in self._account.credentials.items())
        try:
            return plain([headers, *(_proof(each) for each in _signers(self._account.signer))])
        except (OSError, ValueError):
            return None


def lookups(provider: Provider) -> str:
    """The rules by which a call is found, without those numbers that say how far an answer is believed."""
    outcome = getattr(provider, "outcome", ())
    said = [getattr(provider, name, None) for name in LOOKUPS]
    errors = getattr(provider, "errors", None)
    shape = getattr(errors, "shape", None)
    absent = [rule for rule in outcome if rule.says is Says.ABSENT]
    return plain([type(provider).__qualname__, said, shape, absent, getattr(provider, "ask_about", None)])


def ways(provider: Provider) -> int:
    """The lower half: the rules of the look-ups, and where a cancel by key goes. 0 stands for no cancel."""
    return digest(lookups(provider)) >> CANCEL_BITS << CANCEL_BITS | cancels(provider)


def cancels(provider: Provider) -> int:
    """Where the cancel of a provider goes, as a number; 0: it has none. How its answer is read is left out."""
    rule = getattr(provider, "cancels", None)
    if rule is None:
        return 0
    return digest(plain([rule.method, rule.path, rule.body])) % ((1 << CANCEL_BITS) - 1) + 1


def plain(thing: Any) -> str:
    """The same text for equal values in every process and release: no order of a set, no address, no new default."""
    if isinstance(thing, enum.Enum):
        return repr(thing.value)
    if thing is None or isinstance(thing, bool | int | float | str | bytes):
        return repr(thing)
    if isinstance(thing, re.Pattern):
        return repr(thing.pattern)
    if isinstance(thing, Mapping):
        return "{" + ",".join(sorted(f"{plain(name)}:{plain(value)}" for name, value in thing.items())) + "}"
    if isinstance(thing, set | frozenset):
        return "{" + ",".join(sorted(plain(each) for each in thing)) + "}"
    if isinstance(thing, list | tuple):
        return "[" + ",".join(plain(each) for each in thing) + "]"
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        said = {each.name: getattr(thing, each.name) for each in dataclasses.fields(thing) if _is_said(thing, each)}
        return type(thing).__qualname__ + plain(said)
    if isinstance(thing, BaseModel):
        # What stands at its default is left out here too.
        fields = type(thing).model_fields.items()
        given = {name: getattr(thing, name) for name, _ in fields}
        defaults = {name: field.get_default(call_default_factory=True) for name, field in fields}
        return type(thing).__qualname__ + plain({n: value for n, value in given.items() if value != defaults[n]})
    name = getattr(thing, "__qualname__", None) or type(thing).__qualname__
    return f"{getattr(thing, '__module__', '')}.{name}"


def _is_said(thing: Any, field: dataclasses.Field[Any]) -> bool:
    value = getattr(thing, field.name)
    if field.default is not dataclasses.MISSING:
        return bool(value != field.default)
    return field.default_factory is dataclasses.MISSING or bool(value != field.default_factory())


def _signers(signer: Signer | None) -> tuple[Signer, ...]:
    if isinstance(signer, Signers):
        return tuple(inner for each in signer.each for inner in _signers(each))
    return () if signer is None else (signer,)


def _proof(signer: Signer) -> Any:
    if isinstance(signer, RenewedToken):
        # Where its file is decides nothing.
        return [signer.prefix, signer.token]
    return signer
