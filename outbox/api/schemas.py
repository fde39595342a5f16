"""JSON Schemas of the API's answers, for its own description."""

from __future__ import annotations

from typing import Any, Final

from idem.outbox.domain.problem_catalogue import PROBLEMS
from idem.outbox.domain.states import KeyState

PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "enum": sorted(PROBLEMS)},
        "intent": {"type": "string", "format": "uuid"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "detail"],
                "properties": {"pointer": {"type": "string"}, "detail": {"type": "string"}},
            },
        },
    },
}
INTERIM: Final[dict[str, Any]] = {
    "description": "Present while the provider is still working: what the operation shows its client, e.g. the "
    "address at which a customer must act; by default the provider's reference and its word for the "
    "state. A newer one replaces it, and the final answer removes it.",
    "examples": [{"reference": "pay_1", "status": "requires_action"}],
}
ACCEPTED: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["intent", "operation", "state", "step"],
    "properties": {
        "intent": {"type": "string", "format": "uuid"},
        "operation": {"type": "string"},
        "state": {"const": "in_progress"},
        "step": {"type": "string"},
        "interim": INTERIM,
    },
}
_TIME: Final = {"type": ["string", "null"], "format": "date-time"}
_TEXT: Final = {"type": ["string", "null"]}
INTENT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["id", "operation", "key", "state", "created_at"],
    "properties": {
        "id": {"type": "string", "format": "uuid"},
        "operation": {"type": "string"},
        "key": {"type": "string"},
        "state": {"type": "string", "enum": [state.value for state in KeyState if state is not KeyState.EXPIRED]},
        "outcome": _TEXT,
        "step": _TEXT,
        "label": _TEXT,
        "provider_reference": _TEXT,
        "created_at": _TIME,
        "settled_at": _TIME,
        "expires_at": _TIME,
        "answer": {"type": ["object", "null"]},
        "interim": INTERIM,
        "timeline": {"type": "array", "items": {"type": "object"}},
    },
}
