"""Lines of a home-made outbox, and `idem import` of them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from fix_desk import Desk, Result

HOUR = timedelta(hours=1)
WHY = ("--reason", "moved from the payments table", "--yes")


def line(key: str = "k1", state: str = "completed", **more: Any) -> dict[str, Any]:
    """A line about a payment of 100."""
    made: dict[str, Any] = {
        "tenant": "t", "operation": "pay.keyed", "key": key, "params": {"amount": 100}, "state": state,
    }  # fmt: skip
    if state in ("completed", "refused") and "answer" not in more:
        made["answer"] = {"status": 201, "headers": {"content-type": "text/plain"}, "body": "paid"}
    return made | more


def in_flight(key: str = "k1", *, ago: timedelta = HOUR, **more: Any) -> dict[str, Any]:
    """A line about a call whose end nobody saw."""
    sent = (datetime.now(UTC) - ago).isoformat()
    return line(key, "in_flight", first_sent_at=sent, **({"provider_key": str(uuid4())} | more))


def written(*lines: dict[str, Any] | str) -> str:
    """A file of these lines."""
    return "".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines)


async def taken(desk: Desk, folder: Path, *lines: dict[str, Any] | str, options: tuple[str, ...] = WHY) -> Result:
    """`idem import` of these lines."""
    file = folder / "outbox.jsonl"
    file.write_text(written(*lines))
    return await desk.cli("import", file, *options)
