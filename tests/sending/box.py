"""The spool directory, and an application that sends to it."""

import time
from pathlib import Path
from typing import Any

from fix_spine import Spine
from prometheus_client import REGISTRY

from idem import Answer, Idem
from idem.outcomes import Absent, Succeeded
from idem.sending import Question, Sending, SendRequest

OPERATION = "mails.send"
TIMES = {
    "deadline": "1s", "flight_limit": "60s", "pause_allowance": "120s",
    "schedule": ["5s", "30s", "2m", "10m", "1h"],
}  # fmt: skip


class Box:
    """A file for each mail, named by its key; a second mail under a key is a second file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(exist_ok=True)

    @property
    def mails(self) -> list[str]:
        return sorted(each.name for each in self.path.glob("*.eml"))

    def put(self, request: SendRequest) -> Succeeded:
        (self.path / f"{request.key}.{time.monotonic_ns()}.eml").write_bytes(request.body)
        return Succeeded(request.key)

    def post(self, request: SendRequest, call: Sending) -> Succeeded:
        call.start()
        return self.put(request)

    def look(self, question: Question) -> Succeeded | Absent:
        found = list(self.path.glob(f"{question.provider_key}.*.eml"))
        return Succeeded(question.provider_key) if found else Absent()


def idem_of(path: Path, send: Any, **settings: Any) -> Idem:
    """The application. Without a look-up, a person decides what is unknown."""
    path.write_text('environment = "test"\n')
    idem = Idem(path, env={})
    said = TIMES | ({} if "lookup" in settings else {"on_unsettleable": "operator"}) | settings
    idem.provider("mail", send=send, **said)
    for account in settings.get("accounts", ["send"]):
        pinned = {"account": account} if "accounts" in settings else {}
        idem.operation(
            f"mails.{account}", dict[str, Any], provider="mail",
            answer=lambda o: Answer(201, {"mail": o.reference}), **pinned,
        )  # fmt: skip
    return idem


def overrunning() -> float:
    return REGISTRY.get_sample_value("idem_overrunning_calls", {"provider": "mail", "account": "main"}) or 0.0


async def status(post: Spine, intent: Any) -> str:
    row = await post.row_if_any(intent)
    return "gone" if row is None else str(row["status"])
