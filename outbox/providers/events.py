"""What a verified delivery says: read by the same rules as an answer. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from idem.outbox.domain.outcomes import Refused
from idem.outbox.domain.webhook import Event
from idem.outbox.providers import batches, outcome_rules, response
from idem.outbox.providers.outcome_rules import Condition, Rule, Says
from idem.outbox.providers.reading import Facts
from idem.outbox.providers.response import UNREADABLE, Document
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import MISSING, Tokens

AS_SHOWN: Final = 200
"""The HTTP status under which the rules see the object of an event: as if a look-up had shown it."""


UUID_FORM: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True)
class EventReader:
    """Where in a delivery to find what. Every pointer begins at the body's top; for a batch all but `events` and
    `when` begin at the item, or at what `event_path` finds in it.

    `key` is our provider key (`more_keys`: further places of it, the tag's where none has one), `reference` the
    provider's own; `object` is what the outcome rules are about. `types` are the wanted ones, a star at the end for all
    that begin so; none: every type is wanted. `when` must hold of the body, or nothing in it is wanted (live and test
    mode at one address). `events` is the list of a batch; without it the body is one event. `id_parts` follow `id`
    where only several members together tell one event from another. `signed`: all of an item that its sender has
    signed, and so all of it that is read; none: everything.
    """

    object: Tokens = ()
    id: tuple[Tokens, ...] = ()
    type: Tokens | None = None
    types: tuple[str, ...] = ()
    keys: tuple[Tokens, ...] = ()
    reference: Tokens | None = None
    when: tuple[Condition, ...] = ()
    events: Tokens | None = None
    event_path: Tokens = ()
    signed: tuple[Tokens, ...] = ()

    def read(self, body: bytes, facts: Facts) -> tuple[Event, ...] | None:
        """The events, none of an empty batch; None for a body that is not JSON, or not a batch where one is due.

        Of a batch each has the body that says it alone. Never raises.
        """
        content = response.read_event(body)
        if content is UNREADABLE:
            return None
        due = all(condition.holds(json_pointer.resolve(content, condition.at)) for condition in self.when)
        if self.events is None:
            return (self._event(content, facts, due),)
        items = json_pointer.resolve(content, self.events)
        if not isinstance(items, list):
            return None
        believed = [_only(item, self.signed) if self.signed else item for item in items]
        read = [self._event(json_pointer.resolve(item, self.event_path), facts, due) for item in believed]
        parts = (body,) if len(items) == 1 else batches.alone(body, self.events)
        if parts is None:
            return None
        return tuple(replace(event, body=part) for event, part in zip(read, parts, strict=True))

    def _event(self, content: Any, facts: Facts, due: bool) -> Event:
        tag, types = facts.tag, facts.object_types
        kind = response.word(json_pointer.resolve(content, self.type))
        shown = json_pointer.resolve(content, self.object)
        keys = self._keys(content, None if tag is None else tag.key(shown))
        event = Event(
            id=self._id(content),
            type=kind,
            wanted=due and self._wants(kind),
            key=keys[0] if keys else None,
            more_keys=keys[1:],
            reference=response.reference(json_pointer.resolve(content, self.reference)),
            ours=None if tag is None else tag.ours(shown, facts.deployment),
            kind=None if types is None else types.of(shown),
        )
        event = _concluded(event, shown, facts.outcome)
        if event.later and tag is not None and tag.key_at is not None:
            # Whoever asked for what came later: the object that it came to says whose it is.
            event = replace(event, key=tag.key(shown), more_keys=())
        return event

    def _keys(self, content: Any, marked: str | None) -> tuple[str, ...]:
        """What may be our key, each once; a UUID before anything else, because all of ours are."""
        found = [response.word(json_pointer.resolve(content, at)) for at in self.keys]
        keys = tuple(dict.fromkeys(key for key in found if key is not None)) or ((marked,) if marked else ())
        return tuple(sorted(keys, key=lambda key: not UUID_FORM.fullmatch(key)))

    def _id(self, content: Any) -> str | None:
        parts = [response.word(json_pointer.resolve(content, each)) for each in self.id]
        return None if not parts or None in parts else "/".join(part for part in parts if part is not None)

    def _wants(self, kind: str | None) -> bool:
        return outcome_rules.of_type(self.types, kind)


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
    reference = places.read_reference(shown) or event.reference
    status, fields = places.read_status(shown), places.read_fields(shown)
    if rule.says is Says.LATER_FACT:
        return replace(event, later=True, reference=reference, status=status, fields=fields, note=note)
    if places.reference is not None and reference is None and rule.says is not Says.REFUSED:
        return replace(event, note="the object has no reference")
    if rule.says is Says.REFUSED:
        return replace(event, reference=reference, said=Refused(reference, status, fields), note=note)
    return replace(
        event, reference=reference, said=outcome_rules.exists(rule.says, reference, status, fields), note=note
    )
