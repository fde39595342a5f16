"""What the clients saw: one JSON line for each response, written as it arrives."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Literal, TypeAlias

ClientAct: TypeAlias = Literal["pay", "poll", "twice", "other_body", "rolled_back", "after"]
"""The kind of request: the first, a retry, one of several at once, other content under the key, one whose transaction
is rolled back, one after the final answer.
"""

ClientHeard: TypeAlias = Literal[
    "accepted", "retrying", "replay", "in_progress", "unknown", "needs_operator", "mismatch", "expired", "error"
]


@dataclass(frozen=True, slots=True)
class LogLine:
    """One request of a client and its response.

    `committed`: whether its transaction is in the database; None if the answer to the COMMIT was lost. `status`,
    `headers` and `body_sha256` are the answer, if it was final.
    """

    at: float
    key: str
    operation: str
    asked: ClientAct
    said: ClientHeard
    committed: bool | None
    intent: str | None = None
    status: int | None = None
    headers: Mapping[str, str] | None = None
    body_sha256: str | None = None
    note: str | None = None

    @property
    def is_acceptance(self) -> bool:
        """Whether the client knows from this line that its intent is committed."""
        return self.committed is True and self.intent is not None and self.said not in ("mismatch", "error")

    @property
    def answer(self) -> tuple[int | None, str, str | None]:
        """The answer as a comparable value."""
        return self.status, json.dumps(dict(self.headers or {}), sort_keys=True), self.body_sha256


class ClientLog:
    """Appends lines to a file; each is flushed to the operating system before the client continues."""

    def __init__(self, path: Path) -> None:
        self._file: TextIOWrapper = path.open("a", encoding="utf-8", buffering=1)

    def write(self, line: LogLine) -> None:
        self._file.write(json.dumps(dataclasses.asdict(line), separators=(",", ":")) + "\n")

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> list[LogLine]:
    """All lines, in the order of the responses."""
    return [LogLine(**json.loads(text)) for text in path.read_text(encoding="utf-8").splitlines()]
