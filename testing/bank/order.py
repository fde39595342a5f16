"""A parsed request: the account, the key, the payment."""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from idem.testing.bank.settings import BankAccount, BankApi, BankSettings
from idem.testing.bank.stripe.forms import form
from idem.testing.bank.wire import Incoming

FAULT_HEADER = "x-bank-fault"
FAULT_MEMBER = "bank_fault"
FORM = "application/x-www-form-urlencoded"
PREFIX = "/_bank/"
"""The prefix of the control endpoint, which every account has, whatever its API."""


@dataclass(frozen=True)
class BankOrder:
    """What the request asks for. `account` None: no account has this token. `params` None: the body is not a JSON
    object.
    """

    incoming: Incoming
    account: BankAccount | None
    path: str
    query: Mapping[str, str]
    params: Mapping[str, Any] | None
    key: str | None
    reference: str | None
    fault: str | list[Any] | None
    body_sha256: str = field(repr=False)
    asks: str = "effect"

    @property
    def fingerprint(self) -> str:
        """A hash of the request, without spaces, the order of members and the fault, which is not part of it."""
        asked = {name: value for name, value in (self.params or {}).items() if name != FAULT_MEMBER}
        canonical = json.dumps([self.incoming.method, self.path, asked], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def read_order(incoming: Incoming, settings: BankSettings) -> BankOrder:
    """Parse a request, complete or cut; nothing in it is an error here."""
    account = account_of(incoming.headers, settings)
    url = urlsplit(incoming.target)
    query = {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
    stripe = account is not None and account.api is BankApi.STRIPE and not url.path.startswith(PREFIX)
    params = _form(incoming.body) if stripe or _is_form(incoming.headers) else _object(incoming.body)
    key: str | None = None
    asks = _asks(incoming.method, url.path, account)
    if account is not None:
        if account.key_header is not None:
            key = incoming.headers.get(account.key_header.lower())
        if key is None and account.key_field is not None and params is not None and not stripe:
            key = _text(params.get(account.key_field))
    reference = _text((params or {}).get("reference"))
    metadata = (params or {}).get("metadata")
    metadata = metadata if stripe and isinstance(metadata, Mapping) else {}
    if account is not None and stripe:
        reference = next((text for name in account.stripe.reference if (text := _text(metadata.get(name)))), None)
    if account is not None and account.cancel is not None and asks == "cancel":
        key = _text((params or {}).get(account.cancel.member))
    if incoming.method == "GET":
        # A look-up has no key of its own; the log records the key or reference that it asks about.
        key, reference = query.get("key"), query.get("reference")
    fault = incoming.headers.get(FAULT_HEADER) or (params or {}).get(FAULT_MEMBER) or metadata.get(FAULT_MEMBER)
    return BankOrder(
        incoming,
        account,
        url.path,
        query,
        params,
        key or None,
        reference,
        fault if isinstance(fault, (str, list)) or fault is None else [fault],
        hashlib.sha256(incoming.body).hexdigest(),
        asks,
    )


def account_of(headers: Mapping[str, str], settings: BankSettings) -> BankAccount | None:
    """The account of the bearer token, or of the user name of Basic; without `require_auth` the first account serves
    every other request."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        token = _user(token)
    if scheme.lower() in ("bearer", "basic"):
        for account in settings.accounts:
            if account.token == token.strip():
                return account
    return None if settings.require_auth else settings.accounts[0]


def _asks(method: str, path: str, account: BankAccount | None) -> str:
    if method in ("GET", "HEAD"):
        return "lookup"
    own = account is None or account.api is BankApi.OWN
    if own and account is not None and account.cancel is not None and (method, path) == ("POST", account.cancel.path):
        return "cancel"
    if own and (account is None or account.shape is None) and path.strip("/") != "payments":
        # The bank's own API has no such path.
        return "nothing"
    return "effect"


def _user(token: str) -> str:
    try:
        return base64.b64decode(token, validate=True).decode().partition(":")[0]
    except ValueError:
        return ""


def _is_form(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


def _form(body: bytes) -> Mapping[str, Any] | None:
    try:
        return form(body.decode())
    except ValueError:
        return None


def _object(body: bytes) -> Mapping[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
