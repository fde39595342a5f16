"""The ways by which one wish comes in, and what each is told: a word for the decision, and the stored answer."""

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from fix_accept import Acceptor
from fix_api import client
from fix_spine import Spine
from fix_sql import query
from producers.application import Application, synced

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.decisions import Replay
from idem.outbox.values.errors import Unserved

Told = tuple[str, bytes | None]
PARAMS = {"amount": 100, "at": "10:00", "pan": "4111111111111111"}
WORDS = {"accepted": "taken", "retrying": "taken", "inprogress": "in_progress", "key_reused": "mismatch"}


def use(spine: Spine, catalogue: Catalogue) -> None:
    """From now on every door knows this catalogue."""
    spine.catalogue = catalogue
    spine.acceptor = Acceptor(catalogue.operations, catalogue.providers)
    query(spine.url, "DELETE FROM idem.operations")
    synced(spine.url, catalogue)


async def by_http(spine: Spine, params: Any = PARAMS) -> Told:
    async with client(spine) as api:
        told = await api.ask(json=params)
    if told.status_code == 202:
        return "taken", None
    if told.status_code == 201:
        assert told.headers["idempotent-replayed"] == "true"
        return "replay", told.content
    code = told.json()["code"]
    if code == "not_executed":
        assert told.status_code == 503 and "is not configured as it was" in told.json()["detail"], told.text
        assert int(told.headers["retry-after"]) >= 3600
        return "refused", None
    return WORDS.get(code, code), None


async def by_library(spine: Spine, params: Any = PARAMS) -> Told:
    try:
        decision = spine.accept(params=params)
    except Unserved as error:
        assert f"or run `idem intents cancel {error.intent_id}`" in str(error)
        return "refused", None
    word = type(decision).__name__.lower()
    return WORDS.get(word, word), decision.answer.body if isinstance(decision, Replay) else None


async def by_sql(spine: Spine, params: Any = PARAMS) -> Told:
    try:
        decision = Application(spine.url).once(params=params)
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        assert "at rest" in str(error) and "idem db sync" in str(error.diag.message_hint)
        return "refused", None
    return WORDS.get(decision.decision, decision.decision), decision.response_body


DOORS: dict[str, Callable[..., Awaitable[Told]]] = {"http": by_http, "library": by_library, "sql": by_sql}
