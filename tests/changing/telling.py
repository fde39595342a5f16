"""Handlers of the operation whose configuration changes: they write down what they are told."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from changing.plan import PAYS
from sqlalchemy import text
from sqlalchemy.orm import Session

from idem import Settled
from idem.outbox.handlers.handler import Handler, handler

HANDLED = """
CREATE TABLE public.told (handler text NOT NULL, intent uuid NOT NULL, number integer NOT NULL);
"""
TOLD = "INSERT INTO public.told VALUES (:handler, :intent, :number)"


def _told(name: str) -> Handler:
    def tell(db: Session, settled: Settled[Any]) -> None:
        values = {"handler": name, "intent": settled.intent, "number": settled.number}
        db.execute(text(TOLD), values)

    return replace(handler(PAYS, tell), name=name, begin="first")


def handlers(names: Iterable[str]) -> dict[str, Handler]:
    """Handlers that write down what they are told; each hears all events from the first one."""
    return {name: _told(name) for name in names}
