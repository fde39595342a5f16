"""Secrets from the environment or a file: read once, at start, and never written anywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from idem.outbox.providers.contracts import Level
from idem.outbox.section import Secret

SENDABLE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
"""What a header can carry: visible ASCII, spaces only inside."""

LARGEST: Final = 65_536
"""Bytes of a secret's file: whoever names another file by mistake hears it."""

Loc: TypeAlias = tuple[str, ...]


class Vault:
    """Resolves secrets and gathers what is wrong with them; a finding never holds a secret.

    Not `needed`: one that is not there is no mistake.
    """

    def __init__(self, env: Mapping[str, str], beside: Path, *, needed: bool = True) -> None:
        self._env = env
        self._beside = beside
        self._needed = needed
        self.findings: list[tuple[Level, Loc, str, str]] = []

    def header(self, secret: Secret, loc: Loc) -> str | None:
        """The value of a header; None, with a finding, where there is none that can be sent."""
        value = self.text(secret, loc)
        if value is None:
            return None
        value = secret.prefix + value
        if not SENDABLE.fullmatch(value):
            self._error(loc, "the credential has characters that no header can carry", "Use visible ASCII only")
            return None
        return value

    def text(self, secret: Secret, loc: Loc) -> str | None:
        """The secret as text, without the newline that editors and `echo` leave behind it."""
        value = self._from_env(secret.env, loc) if secret.env is not None else self._from_file(secret.file or "", loc)
        if value is None:
            return None
        trimmed = value.rstrip("\r\n")
        if trimmed != value:
            self.findings.append(
                ("warning", loc, "the secret ends with a newline, which was left out", "Write it without (printf %s)")
            )
        if not trimmed.strip():
            self._error(loc, "the secret is empty", "Set it")
            return None
        if not trimmed.isascii():
            self._error(loc, "the secret is not ASCII", "Copy it again; typographic signs do not belong into it")
            return None
        return trimmed

    def _from_env(self, name: str, loc: Loc) -> str | None:
        value = self._env.get(name)
        if value is None and self._needed:
            self._error(loc, f"the environment variable {name} is not set", "Set it, or name another one")
        return value

    def _from_file(self, name: str, loc: Loc) -> str | None:
        try:
            with (self._beside / name).open("rb") as file:
                content = file.read(LARGEST + 1)
            if len(content) > LARGEST:
                self._error(loc, f"the file {name} is too large for a secret", "Name the file that holds it alone")
                return None
            return content.decode("utf-8")
        except (OSError, ValueError) as error:
            if not self._needed and isinstance(error, FileNotFoundError | PermissionError):
                return None
            # A UnicodeDecodeError would show the bytes.
            why = "it is not text" if isinstance(error, ValueError) else (error.strerror or type(error).__name__)
            self._error(loc, f"the file {name} cannot be read: {why}", "Check its name and who may read it")
            return None

    def _error(self, loc: Loc, what: str, do: str) -> None:
        self.findings.append(("error", loc, what, do))
