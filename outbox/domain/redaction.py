"""What may be kept of a provider's answer, and what is shown of it: without secrets and card data, and masked.

Both work on text as it comes, whole or cut, in one pass: an answer need not be JSON.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from idem.outbox.domain.contract import Account, Response
from idem.outbox.domain.outcomes import Ambiguous, NotExecuted, Outcome, Refused, Seen
from idem.outbox.values import card_data

KEPT: Final = 2048
"""Bytes of an answer that are kept."""
READ: Final = 4 * KEPT
"""Bytes that are looked through: a name that begins inside what is kept ends in here."""
TAKEN_OUT: Final = "[taken out]"
MASK: Final = "***"

SECRETS: Final = card_data.NAMES | {
    "password", "passwd", "secret", "clientsecret", "token", "accesstoken", "refreshtoken", "idtoken", "apikey",
    "secretkey", "privatekey", "authorization", "cookie", "setcookie", "signature", "iban", "bic", "accountnumber",
    "ssn", "email", "phone",
}  # fmt: skip
"""Names of members, in small letters without separators, whose values are not kept."""

_MEMBER = re.compile(r'"([^"\\]{1,64})"(\s{0,8}:\s{0,8})("(?:[^"\\]|\\.)*"?|[^\s",{}\[\]]+)')
_PAIR = re.compile(r"(?<![^?&\s])([\w.\[\]-]{1,64})=([^&\s\"<>]+)")


def kept(body: bytes, secrets: Iterable[str] = ()) -> str:
    """The beginning of an answer as it is kept: `KEPT` bytes at the most, `secrets` and what is named like one taken
    out. Never raises."""
    text = body[:READ].decode("utf-8", "replace")
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, TAKEN_OUT)
    text = _MEMBER.sub(_member, text)
    text = _PAIR.sub(lambda m: f"{m[1]}={TAKEN_OUT}" if _is_secret(m[1]) else m[0], text)
    text = card_data.NUMBER.sub(lambda m: TAKEN_OUT if card_data.is_number(m[0]) else m[0], text)
    return text.encode("utf-8", "replace")[:KEPT].decode("utf-8", "ignore")


def quoted(seen: Seen, response: Response, outcome: Outcome, account: Account) -> Seen:
    """With what the provider said about a failure that an operator may have to look into: not about a success, nor
    about what is retried automatically."""
    match outcome:
        case Refused(fields={"message": str(said)}) if seen.message is None:
            seen = replace(seen, message=said)
        case Refused() | Ambiguous() | NotExecuted(why="request" | "config"):
            pass
        case _:
            return seen if seen.message is None else replace(seen, message=None)
    secrets = [word for value in account.credentials.values() for word in (value, value.split(" ")[-1])]
    message = None if seen.message is None else kept(seen.message.encode("utf-8", "replace"), secrets)
    return replace(seen, message=message, body=kept(response.body, secrets))


def _member(match: re.Match[str]) -> str:
    return f'"{match[1]}"{match[2]}"{TAKEN_OUT}"' if _is_secret(match[1]) else match[0]


def _is_secret(name: str) -> bool:
    return re.sub(r"[^a-z0-9]", "", name.lower()) in SECRETS


def masked(text: str) -> str:
    """The same for a screen: names and structure, and no value; of text that is not JSON only its length."""
    try:
        return json.dumps(_masked(json.loads(text)), ensure_ascii=False)
    except (ValueError, RecursionError):
        found = _MEMBER.sub(lambda m: f'"{m[1]}"{m[2]}"{MASK}"', text) if text.lstrip().startswith(("{", "[")) else ""
        names = ", ".join(dict.fromkeys(m[1] for m in _MEMBER.finditer(found)))
        return f"{len(text)} characters" + (f", with {names}" if names else "")


def _masked(value: Any) -> Any:
    match value:
        case dict():
            return {name: _masked(item) for name, item in value.items()}
        case list():
            return [_masked(item) for item in value[:3]] + (["..."] if len(value) > 3 else [])
        case None | bool():
            return value
        case _:
            return MASK
