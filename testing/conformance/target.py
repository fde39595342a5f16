"""The tested server: the paths and bodies of its operations, and the names of its problems."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

OPERATIONS = {
    "pay": "/v1/intents/conformance.pay",
    "other": "/v1/intents/conformance.other",
    "any": "/v1/intents/conformance.any",
    "accepting": "/v1/intents/conformance.accepting",
    "approving": "/v1/intents/conformance.approving",
    "lenient": "/v1/intents/conformance.lenient",
    "refusing": "/v1/intents/conformance.refusing",
    "acting": "/v1/intents/conformance.acting",
    "existing": "/v1/intents/conformance.existing",
    "nowhere": "/v1/intents/conformance.nowhere",
}
"""The cases' name of an operation, and its path. docs/conformance.md says what each must do."""

BODIES: Mapping[str, Any] = {
    "body": {"amount": 1250, "currency": "eur", "note": "first"},
    "other_body": {"amount": 1251, "currency": "eur", "note": "first"},
}


@dataclass(frozen=True, slots=True)
class Target:
    """One server. `profile` is its configuration: a case for another profile does not run.

    `problems` False: codes and types of problems are not compared (another server has its own); or a mapping from
    idem's codes to those of the server. `max_body`: the largest body that it accepts, in bytes.
    """

    url: str
    token: str | None = None
    other_token: str | None = None
    profile: str = "default"
    operations: Mapping[str, str] = field(default_factory=lambda: dict(OPERATIONS))
    bodies: Mapping[str, Any] = field(default_factory=lambda: dict(BODIES))
    problems: Mapping[str, str] | bool = True
    key_header: str = "Idempotency-Key"
    webhook_secret: str | None = None
    max_body: int = 65_536

    @classmethod
    def read(cls, file: Path, **changes: Any) -> Self:
        """A target from a JSON file with the members of this class; `changes` that are not None win.

        Raises ValueError if the file is invalid.
        """
        given = json.loads(file.read_text("utf-8"))
        if not isinstance(given, dict):
            raise ValueError("a target must be a JSON object")
        if unknown := set(given) - set(cls.__dataclass_fields__):
            raise ValueError(f"unknown in a target: {', '.join(sorted(unknown))}")
        given |= {name: value for name, value in changes.items() if value is not None}
        if "url" not in given:
            raise ValueError("a target needs a url")
        return cls(**given)

    def at(self, url: str) -> Self:
        """The same server at another address."""
        return replace(self, url=url)

    def code(self, ours: str) -> str | None:
        """This server's name of one of idem's codes; None if codes are not compared."""
        if self.problems is False:
            return None
        return ours if self.problems is True else self.problems.get(ours, ours)
