"""Answers that idem gives itself, where no operation renders one."""

import json
from typing import Final

from idem.outbox.domain.operation import Answer
from idem.outbox.domain.problem_catalogue import MEDIA_TYPE, PROBLEMS

_PROBLEM = PROBLEMS["cancelled"]


def _cancelled(detail: str) -> Answer:
    said = {name: getattr(_PROBLEM, name) for name in ("type", "title", "status", "code")}
    return Answer(_PROBLEM.status, json.dumps(said | {"detail": detail}).encode(), {"content-type": MEDIA_TYPE})


CANCELLED: Final = _cancelled("The request was cancelled before anything happened. Use a new key to request it again.")
"""The answer to every request with the key of a cancelled intent, so that a delayed duplicate cannot execute it."""
UNDONE: Final = _cancelled(
    "The request was cancelled, and what had been done was undone. Use a new key to request it again."
)
"""The same of a flow of which something was done."""
PARTLY_UNDONE: Final = _cancelled(
    "The request was cancelled. Not everything that had been done could be undone, and an operator has left it so. "
    "Ask for the request's steps before you request it again."
)
"""The same where an operator has given up one of the steps that undo."""
