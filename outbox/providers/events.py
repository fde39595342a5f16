"""Reads what a verified delivery says, by the same rules as an answer. No I/O."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from idem.outbox.domain.webhook import Event
from idem.outbox.providers import batches, outcome_rules, response
from idem.outbox.providers.outcome_rules import Rule, Says
from idem.outbox.providers.reading import AS_SHOWN, Facts
from idem.outbox.providers.response import UNREADABLE, Document
from idem.outbox.providers.webhook_settings import WebhookSettings
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import MISSING, Tokens

UUID_FORM: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def read(webhook: WebhookSettings, body: bytes, facts: Facts) -> tuple[Event, ...] | None:
    """The events of a delivery, none of an empty batch; None for a body that is not JSON, or not a batch if one is due.

    Each event of a batch has the body that says this event alone. Never raises.
    """
    content = response.read_event(body)
    if content is UNREADABLE:
        return None
    due = all(each.holds(json_pointer.resolve(content, each.at)) for each in outcome_rules.conditions(webhook.when))
    if webhook.batch is None:
        return (_event(webhook, content, facts, due),)
    items = json_pointer.resolve(content, webhook.batch)
    if not isinstance(items, list):
        return None
    signed = webhook.shape.signed
    believed = [_only(item, signed) if signed else item for item in items]
    events = [_event(webhook, json_pointer.resolve(item, webhook.begins), facts, due) for item in believed]
    parts = (body,) if len(items) == 1 else batches.alone(body, webhook.batch)
    if parts is None:
        return None
    return tuple(replace(event, body=part) for event, part in zip(events, parts, strict=True))


def _event(webhook: WebhookSettings, content: Any, facts: Facts, due: bool) -> Event:
    tag, types = facts.tag, facts.object_types
    kind = response.word(json_pointer.resolve(content, webhook.type_at))
    shown = json_pointer.resolve(content, webhook.shows)
    keys = _keys(webhook, content, None if tag is None else tag.key(shown))
    id_parts = [response.word(json_pointer.resolve(content, each)) for each in webhook.id_parts]
    event = Event(
        id=None if not id_parts or None in id_parts else "/".join(filter(None, id_parts)),
        type=kind,
        wanted=due and outcome_rules.of_type(webhook.types, kind),
        key=keys[0] if keys else None,
        more_keys=keys[1:],
        reference=response.reference(json_pointer.resolve(content, webhook.reference_at(facts.object.reference))),
        ours=None if tag is None else tag.ours(shown, facts.deployment),
        kind=None if types is None else types.of(shown),
    )
    event = _concluded(event, shown, facts.outcome)
    if event.later and tag is not None and tag.key_at is not None:
        # The key of the event is that of the request for what came later: the object itself says whose it is.
        event = replace(event, key=tag.key(shown), more_keys=())
    return event


def _keys(webhook: WebhookSettings, content: Any, tagged: str | None) -> tuple[str, ...]:
    """What may be our key, each once; a UUID before anything else, because all of ours are UUIDs."""
    found = [response.word(json_pointer.resolve(content, at)) for at in webhook.key]
    keys = tuple(dict.fromkeys(key for key in found if key is not None)) or ((tagged,) if tagged else ())
    return tuple(sorted(keys, key=lambda key: not UUID_FORM.fullmatch(key)))


def _only(item: Any, places: Iterable[Tokens]) -> dict[str, Any]:
    """The item with nothing in it but what stands at these places."""
    kept: dict[str, Any] = {}
    for *way, last in places:
        found = json_pointer.resolve(item, (*way, last))
        if found is not MISSING:
            inner = kept
            for token in way:
                inner = inner.setdefault(token, {})
            inner[last] = found
    return kept


def _concluded(event: Event, shown: Any, outcome: tuple[Rule, ...]) -> Event:
    """The event with what the rules make of its object."""
    if shown is MISSING:
        return replace(event, bare=True, note="the event shows no object")
    typed = (rule for rule in outcome if rule.says is not Says.ABSENT and outcome_rules.of_type(rule.types, event.type))
    rule = outcome_rules.first(typed, Document(AS_SHOWN, {}, shown), True)
    if rule is None or (rule.says not in outcome_rules.PROOFS and rule.says is not Says.LATER_FACT):
        return replace(event, note="no rule takes the object for the end of anything")
    if not rule.recognises:
        # It tells a good HTTP answer from a bad one; here there is only the object.
        return replace(event, note="the rule demands nothing of the object")
    places, note = rule.places, f"a rule says {rule.says}"
    if rule.says is Says.LATER_FACT:
        return replace(
            event,
            later=True,
            reference=places.read_reference(shown) or event.reference,
            status=places.read_status(shown),
            fields=places.read_fields(shown),
            note=note,
        )
    said = outcome_rules.proof(rule, shown, event.reference)
    if said is None:
        return replace(event, note="the object has no reference")
    return replace(event, reference=said.reference, said=said, note=note)
