"""What has to hold at every step of a story, and at its end: P1 to P5, as the two banks and the database show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
from changing import telling
from fix_api import running
from fix_waiting import stopping

from idem.cli.doctor.queue import against
from idem.outbox.handlers.runner import HandlerRunner
from idem.outbox.tenants import tokens

if TYPE_CHECKING:
    from changing.story import Story, Wish


async def hold(story: Story) -> None:
    _pays_once(story)
    await _same_answer(story)
    await _rests(story)


async def ended(story: Story) -> None:
    await _changes_have_evidence(story)
    await _nothing_is_silent(story)
    await _handlers_hear_each_event_once(story)
    await _every_door_gives_it(story)


def effects(story: Story, wish: Wish) -> list[Any]:
    return [(n, p) for n, bank in enumerate(story.banks) for p in bank.log.effects() if p.amount == wish.amount]


def _pays_once(story: Story) -> None:
    for wish in story.wishes:
        made = effects(story, wish)
        assert len(made) <= 1, f"P2: {wish}: {made}"


async def keys(story: Story) -> dict[tuple[str, str], str]:
    rows = await story.spine.all("SELECT operation, idempotency_key, state FROM idem.idempotency_keys")
    return {(row["operation"], row["idempotency_key"]): row["state"] for row in rows}


async def _same_answer(story: Story) -> None:
    """P3: what is stored stays as it was seen first."""
    for row in await story.spine.all(
        "SELECT operation, idempotency_key, response_status, response_body FROM idem.idempotency_keys"
        " WHERE state = 'completed'"
    ):
        now = row["response_status"], bytes(row["response_body"])
        first = story.answers.setdefault((row["operation"], row["idempotency_key"]), now)
        assert first == now, f"P3: {row['idempotency_key']}: {first} became {now}"


async def _rests(story: Story) -> None:
    """Rows that came to rest without a letter did so because their client was told to come again."""
    if not any(plan["retry"] == "client" for plan in story.plans):
        return
    for row in await story.spine.all("SELECT intent_id FROM idem.outbox WHERE status = 'held'"):
        story.may_rest.add(row["intent_id"])


async def _changes_have_evidence(story: Story) -> None:
    for row in await story.spine.all(
        "SELECT n.id, n.idempotency_key, n.state, o.status, (SELECT e.to_status FROM idem.evidence e"
        " WHERE e.intent_id = n.id AND e.outbox_id = o.id AND e.to_status IS NOT NULL"
        " ORDER BY e.id DESC LIMIT 1) AS seen FROM idem.intents n JOIN idem.outbox o ON o.intent_id = n.id"
    ):
        started = row["seen"] is None and row["status"] in ("pending", "unfrozen")
        assert started or row["seen"] == row["status"] or row["status"] == "claimed", f"P4: {row}"


async def _nothing_is_silent(story: Story) -> None:
    """P1 and P5: each intent has ended, or has a dead letter, or rests with a client who knows, or `idem doctor`
    names the reason for which no daemon serves it."""
    for row in await story.spine.all(
        "SELECT n.id, n.operation, n.idempotency_key, n.state, o.provider, o.account, o.origin, o.format_version,"
        " o.step_name, o.status, o.doubted_since, k.state AS told, EXISTS (SELECT FROM idem.dead_letters d"
        " WHERE d.intent_id = n.id AND d.resolved_at IS NULL) AS letter"
        " FROM idem.intents n LEFT JOIN idem.outbox o ON o.intent_id = n.id"
        " LEFT JOIN idem.idempotency_keys k ON k.intent_id = n.id WHERE n.state <> 'completed'"
    ):
        at_rest = row["status"] in ("held", None) and row["told"] in ("failed_retryable", "expired", None)
        rests = at_rest and row["id"] in story.may_rest
        unserved = row["status"] is not None and against(row, story.catalogues[-1]) is not None
        assert row["letter"] or rests or unserved or row["status"] == "awaiting", f"P5: {row}"


TOLD = """
SELECT h.name, e.aggregateid AS intent, e.number, count(t.handler) AS told
  FROM idem.event_handlers h
  JOIN idem.events e ON (SELECT n.operation FROM idem.intents n WHERE n.id = e.aggregateid) = h.operation
  LEFT JOIN public.told t ON t.handler = h.name AND t.intent = e.aggregateid AND t.number = e.number
 GROUP BY 1, 2, 3 HAVING count(t.handler) <> 1
"""


async def _handlers_hear_each_event_once(story: Story) -> None:
    """Also what settled while a handler was out of the configuration."""
    names = [row["name"] for row in await story.spine.all("SELECT name FROM idem.event_handlers")]
    async with stopping(HandlerRunner(story.spine.url, telling.handlers(names))) as runner:
        await runner.run_once()
    assert not (wrong := await story.spine.all(TOLD)), f"handlers: {wrong}"


async def _every_door_gives_it(story: Story) -> None:
    """P3: every completed key has its answer at each door, under the configuration of now and under any other."""
    known = await keys(story)
    done = [wish for wish in story.wishes if known.get((wish.operation, wish.key)) == "completed"]
    for _ in range(5):
        story.change()
        for wish in done:
            story.log.append("asked")
            assert story.ask(wish) == story.answers[wish.operation, wish.key], f"P3: {wish}"
    _, token = await story.spine.run(tokens.create, "t", "test")
    async with (
        running(story.spine.url, story.catalogues[-1]) as (_, url),
        httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {token}"}, verify=False) as client,
    ):
        for wish in done:
            first = story.answers[wish.operation, wish.key]
            said = await client.post(
                f"/v1/intents/{wish.operation}", headers={"idempotency-key": wish.key}, json=wish.params
            )
            assert (said.status_code, said.content) == first, f"P3 over HTTP: {wish}: {said.text}"
