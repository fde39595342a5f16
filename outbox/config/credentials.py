"""Secrets from the environment or a file: read once, at start, and never written anywhere."""

import base64
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from idem.outbox.config.account_settings import AccountSettings, BasicSettings
from idem.outbox.config.findings import Findings
from idem.outbox.domain.contract import Account, Signer
from idem.outbox.providers.signing import RenewedToken, Signers
from idem.outbox.values.settings_base import Secret

SENDABLE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
"""What a header can carry: visible ASCII, spaces only inside."""

LARGEST: Final = 65_536
"""Bytes of a secret's file. A larger file was named by mistake, and idem says so."""

Loc: TypeAlias = tuple[str, ...]


class Vault:
    """Reads secrets and adds what is wrong with them to `findings`; a finding never holds a secret.

    Not `needed`: a secret that is not there is not a mistake.
    """

    def __init__(self, findings: Findings, env: Mapping[str, str], beside: Path, *, needed: bool = True) -> None:
        self._findings = findings
        self._env = env
        self._beside = beside
        self._needed = needed

    def header(self, secret: Secret, loc: Loc) -> str | None:
        """The value of a header; None, with a finding, where there is none that can be sent."""
        value = self.text(secret, loc)
        if value is None:
            return None
        value = secret.prefix + value
        if not SENDABLE.fullmatch(value):
            self.error(loc, "the credential has characters that no header can carry", "Use visible ASCII only")
            return None
        return value

    def text(self, secret: Secret, loc: Loc) -> str | None:
        """The secret as text, without the newline that editors and `echo` leave behind it."""
        value = self._from_env(secret.env, loc) if secret.env is not None else self._from_file(secret.file or "", loc)
        if value is None:
            return None
        trimmed = value.rstrip("\r\n")
        if trimmed != value:
            self._findings.warn(
                loc, "the secret ends with a newline, which was left out", "Write it without (printf %s)"
            )
        if not trimmed.strip():
            self.error(loc, "the secret is empty", "Set it")
            return None
        if not trimmed.isascii():
            self.error(loc, "the secret is not ASCII", "Copy it again; typographic signs do not belong into it")
            return None
        return trimmed

    def path(self, secret: Secret) -> Path:
        """Where the file of a secret is."""
        return self._beside / (secret.file or "")

    def certificates(self, name: str, loc: Loc) -> str | None:
        """Where a file of certificates is; None, with a finding, where none can be read from it."""
        file = str((self._beside / name).absolute())
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
        except OSError as error:
            if self._needed:
                why = "it contains no PEM certificate" if isinstance(error, ssl.SSLError) else error.strerror
                self.error(loc, f"the file {name} cannot be used: {why}", "Name the file of the authorities, in PEM")
            return None
        return file

    def _from_env(self, name: str, loc: Loc) -> str | None:
        value = self._env.get(name)
        if value is None and self._needed:
            self.error(loc, f"the environment variable {name} is not set", "Set it, or name another one")
        return value

    def _from_file(self, name: str, loc: Loc) -> str | None:
        try:
            with (self._beside / name).open("rb") as file:
                content = file.read(LARGEST + 1)
            if len(content) > LARGEST:
                self.error(loc, f"the file {name} is too large for a secret", "Name the file that holds it alone")
                return None
            return content.decode("utf-8")
        except (OSError, ValueError) as error:
            if not self._needed and isinstance(error, FileNotFoundError | PermissionError):
                return None
            # A UnicodeDecodeError would show the bytes.
            why = "it is not text" if isinstance(error, ValueError) else (error.strerror or type(error).__name__)
            self.error(loc, f"the file {name} cannot be read: {why}", "Check its name and who may read it")
            return None

    def error(self, loc: Loc, what: str, do: str) -> None:
        """Note a mistake."""
        self._findings.error(loc, what, do)


def resolve_accounts(vault: Vault, loc: Loc, accounts: Mapping[str, AccountSettings]) -> dict[str, Account]:
    """Each account with its credentials, as far as they are there."""
    return {name: _resolve(vault, (*loc, name), name, settings) for name, settings in accounts.items()}


def _resolve(vault: Vault, loc: Loc, name: str, settings: AccountSettings) -> Account:
    values = {
        header.lower(): vault.header(secret, (*loc, "headers", header)) for header, secret in settings.headers.items()
    }
    if settings.authorization is not None:
        values["authorization"] = vault.header(settings.authorization, (*loc, "authorization"))
    if settings.basic is not None:
        values["authorization"] = _basic(vault, (*loc, "basic"), settings.basic)
    signer: Signer | None = None
    if settings.token is not None and vault.header(settings.token, (*loc, "token")) is not None:
        signer = RenewedToken(vault.path(settings.token), settings.token.prefix)
    if settings.signature is not None:
        secret = vault.text(settings.signature.secret, (*loc, "signature", "secret"))
        if secret is not None:
            signed = settings.signature.build((settings.signature.secret.prefix + secret).encode())
            signer = signed if signer is None else Signers((signer, signed))
    authorities = None if settings.ca_file is None else vault.certificates(settings.ca_file, (*loc, "ca_file"))
    credentials = {header: value for header, value in values.items() if value is not None}
    return Account(name, settings.origin, credentials, signer, authorities)


def _basic(vault: Vault, loc: Loc, settings: BasicSettings) -> str | None:
    user = vault.text(settings.user, (*loc, "user"))
    password = "" if settings.password is None else vault.text(settings.password, (*loc, "password"))
    if user is None or password is None:
        return None
    user = settings.user.prefix + user
    if ":" in user:
        # RFC 7617: it would end there, and the rest be taken for the password.
        vault.error((*loc, "user"), "the user's name has a colon", "Put what stands behind it into the password")
        return None
    password = (settings.password.prefix if settings.password is not None else "") + password
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
