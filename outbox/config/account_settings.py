"""`providers.<name>.accounts` in idem.toml: where a provider is, and what a call proves itself with."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from idem.outbox.providers.request_parts import OF_THE_REQUEST, check_settable
from idem.outbox.providers.signing import PLACES, Algorithm, Digits, HmacSigner, Timestamp, compile_over
from idem.outbox.providers.template import HEADER_VALUE
from idem.outbox.providers.webhook_settings import AccountWebhookSettings
from idem.outbox.values.settings_base import Secret, Section

VISIBLE: Final = re.compile(r"[!-~]+")

HOST: Final = re.compile(
    r"(?=.{1,253}\.?\Z)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*\.?", re.I
)


def _settable(name: str) -> str:
    check_settable(name, but=OF_THE_REQUEST)
    return name


SettableName: TypeAlias = Annotated[str, AfterValidator(_settable)]


class BasicSettings(Section):
    """User and password of the Basic scheme (RFC 7617)."""

    user: Secret
    """Where idem reads the user's name, or the key that takes its place; it has no colon."""
    password: Secret | None = None
    """Where the password is; default none: it is empty, as with Stripe."""


class SignatureSettings(Section):
    """A signature of every request, look-ups too, by HMAC with a shared secret: made at each sending, never stored."""

    secret: Secret
    """Where the shared secret is; its text is the key."""
    header: SettableName = "X-Signature"
    """Header of the signature; default X-Signature."""
    prefix: str = ""
    """Text before the signature, e.g. "sha256="; default none."""
    algorithm: Algorithm = "sha256"
    """"sha256" (default) or "sha512"."""
    encoding: Digits = "hex"
    """"hex" (default, small letters) or "base64"."""
    over: str = "{method}\n{path}\n{timestamp}\n{body}"
    """What is signed: text with {method}, {path} (with its query, as it is sent), {host}, {timestamp} and {body} (the
    raw bytes); default method, path, timestamp and body, a line each."""
    timestamp_header: SettableName = "X-Timestamp"
    """Header of the time, sent where `over` has {timestamp}; default X-Timestamp."""
    timestamp: Timestamp = "seconds"
    """Form of the time: "seconds" (default) or "milliseconds" since 1970, or "rfc3339"."""

    @field_validator("prefix")
    @classmethod
    def _can_be_sent(cls, value: str) -> str:
        if value and not HEADER_VALUE.fullmatch(value + "0"):
            raise ValueError("the prefix has characters that no header can carry")
        return value

    @field_validator("over")
    @classmethod
    def _is_over(cls, value: str) -> str:
        compile_over(value)
        return value

    @model_validator(mode="after")
    def _are_two_headers(self) -> SignatureSettings:
        if self.header.lower() == self.timestamp_header.lower():
            raise ValueError("signature and time cannot share one header")
        return self

    @property
    def unsigned(self) -> tuple[str, ...]:
        """What of a request the signature leaves open, of that which says where the money goes."""
        return tuple(place for place in ("path", "body") if place in PLACES and f"{{{place}}}" not in self.over)

    def build(self, secret: bytes) -> HmacSigner:
        said = self.model_dump(exclude={"secret", "over"})
        return HmacSigner(secret, compile_over(self.over), **said)


class AccountSettings(Section):
    """One credential of a provider; keys, look-ups and webhooks are scoped to it."""

    origin: str
    """Scheme, host and port of the provider, e.g. https://api.bank.example; no default. There is no setting for an
    egress proxy: what a proxy has done after CONNECT cannot be seen, and so no call through one could be proven not
    sent. Let the network route the calls."""
    ca_file: str | None = Field(default=None, min_length=1)
    """File of PEM certificates of the authorities that may sign this provider's certificate, as of a bank's own; a
    relative path is beside idem.toml. They alone are trusted then. Default: those of SSL_CERT_FILE or SSL_CERT_DIR,
    else the public ones (certifi)."""
    authorization: Secret | None = None
    """Where the value of the Authorization header is; default none. Resolved at start, not stored."""
    basic: BasicSettings | None = None
    """User and password instead, sent as Authorization: Basic; default none."""
    token: Secret | None = None
    """File with an access token of short life (OAuth), sent as Authorization and read anew at every call, so that
    whoever renews it needs no restart; default none."""
    signature: SignatureSettings | None = None
    """A signature over each request; default none. It may stand beside the others."""
    headers: dict[str, Secret] = Field(default_factory=dict)
    """Other headers with credentials, name to secret; default none."""
    webhook: AccountWebhookSettings | None = None
    """What this account's events are signed with; default none: they are refused."""

    @field_validator("origin")
    @classmethod
    def _is_origin(cls, value: str) -> str:
        parts = urlsplit(value)
        # urlsplit leaves out line ends and tabs, wherever they are.
        if parts.scheme not in ("http", "https") or not parts.hostname or not VISIBLE.fullmatch(value):
            raise ValueError("an origin is scheme, host and port, e.g. https://api.bank.example")
        if parts.username is not None or parts.password is not None:
            raise ValueError("an origin holds no credentials: use authorization")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError("an origin has no path: it belongs to the paths of the operations")
        if not _is_address(parts.hostname) and not HOST.fullmatch(parts.hostname):
            raise ValueError(f"{parts.hostname!r} is neither the name of a host nor an IP address")
        if parts.port == 0:
            raise ValueError("nobody listens at port 0: say another one, or none")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port is not None else "")

    @field_validator("token")
    @classmethod
    def _is_renewed(cls, value: Secret | None) -> Secret | None:
        if value is not None and value.file is None:
            raise ValueError("nobody can renew a token in a variable: name its file, or use authorization")
        return value

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, value: dict[str, Secret]) -> dict[str, Secret]:
        for name in value:
            _settable(name)
        return value

    @property
    def sets(self) -> list[str]:
        """Every header that the account sets, in lower case; a name that is said twice is there twice."""
        names = [name.lower() for name in self.headers]
        names += ["authorization" for given in (self.authorization, self.basic, self.token) if given is not None]
        if self.signature is not None:
            names.append(self.signature.header.lower())
            if "{timestamp}" in self.signature.over:
                names.append(self.signature.timestamp_header.lower())
        return names

    @property
    def is_open(self) -> bool:
        """Whether credentials would travel unencrypted over a network."""
        parts = urlsplit(self.origin)
        if parts.scheme == "https" or parts.hostname == "localhost":
            return False
        host = parts.hostname or ""
        return not _is_address(host) or not ipaddress.ip_address(host).is_loopback


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
