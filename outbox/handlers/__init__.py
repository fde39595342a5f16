"""Handlers of settled intents: the user's own code, run once for each event, in one transaction with its mark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idem.outbox.handlers.handler import Handler, Settled, handler

if TYPE_CHECKING:
    from idem.outbox.handlers.runner import HandlerRunner

__all__ = ["Handler", "HandlerRunner", "Settled", "handler"]


def __getattr__(name: str) -> Any:
    # What registers a handler is an application; only a daemon runs it, and has the pool that this needs.
    if name == "HandlerRunner":
        from idem.outbox.handlers.runner import HandlerRunner

        return HandlerRunner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
