"""The control endpoint `/_bank/…`: scripts, clock and statistics for a test that runs the bank in another process."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from idem.testing.bank.answers import BankAnswer, encoded, refusal
from idem.testing.bank.errors import SettingsError
from idem.testing.bank.log import Log
from idem.testing.bank.order import PREFIX
from idem.testing.bank.state import BankState


class Control:
    """`POST /_bank/script` adds a rule, `DELETE` removes all; `POST /_bank/clock {"shift": seconds}`;
    `GET /_bank/stats`. These requests are not logged and have no faults."""

    def __init__(self, state: BankState) -> None:
        self._state = state

    def handle(
        self, method: str, path: str, headers: Mapping[str, str], params: Mapping[str, Any] | None
    ) -> BankAnswer:
        # A browser's page on this machine can post to this port, but not with this content type.
        if method == "POST" and headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return refusal(415, "unsupported_media_type", "Send application/json.")
        try:
            match method, path.removeprefix(PREFIX):
                case "POST", "script":
                    if params is None:
                        raise SettingsError("the body is not a JSON object")
                    added = self._state.script.add_json(params, commands=False)
                    return BankAnswer(201, encoded({"added": added, "left": self._state.script.left()}))
                case "DELETE", "script":
                    self._state.script.clear()
                    return BankAnswer(200, encoded({"left": 0}))
                case "POST", "clock":
                    seconds = (params or {}).get("shift")
                    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds < 0:
                        raise SettingsError("shift must be a number of seconds, 0 or more")
                    self._state.shift_clock(float(seconds))
                    return BankAnswer(200, encoded({"shift": seconds}))
                case "GET", "stats":
                    return BankAnswer(200, encoded(stats(self._state)))
                case _:
                    return refusal(404, "not_found", "Use script, clock or stats.")
        except SettingsError as error:
            return refusal(400, "bad_script", str(error))


def stats(state: BankState) -> dict[str, Any]:
    """The numbers of its log: requests by status (`none`: not answered), payments, faults, duplicates by reference."""
    log = Log(state.ledger.records)
    statuses = Counter("none" if r.status is None else str(r.status) for r in log.requests if r.complete)
    return {
        "requests": len(log.requests),
        "cut": sum(not r.complete for r in log.requests),
        "sends": len(log.sends()),
        "keys": len(log.sends_by_key()),
        "payments": len(log.payments()),
        "effects": len(log.effects()),
        "replayed": sum(r.effect == "replayed" for r in log.requests),
        "duplicates": len(log.duplicates()),
        "statuses": dict(statuses),
        "faults": dict(log.faults()),
        "webhooks": len(log.webhooks),
        "script_left": state.script.left(),
    }
