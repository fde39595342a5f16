"""What a verified event says: read by the same rules as an answer. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from idem.outbox import pointer
from idem.outbox.contract import Event
from idem.outbox.outcomes import Proof, Refused
from idem.outbox.pointer import MISSING, Tokens
from idem.outbox.providers import document, rules
from idem.outbox.providers.document import UNREADABLE, Document
from idem.outbox.providers.rules import Rule, Says

AS_SHOWN = 200
"""The HTTP status under which the rules see the object of an event: as if a look-up had shown it."""


@dataclass(frozen=True, slots=True)
class EventReader:
    """Where in an event to find what; every pointer begins at the body's top.

    `key` is our provider key, `reference` the provider's own; `object` is what the outcome rules are about. `types`
    are the wanted ones, a star at the end for all that begin so; none: every type is wanted.
    """

    object: Tokens = ()
    id: Tokens | None = None
    type: Tokens | None = None
    types: tuple[str, ...] = ()
    key: Tokens | None = None
    reference: Tokens | None = None

    def read(self, body: bytes, outcome: Iterable[Rule]) -> Event | None:
        """The event; None for a body that is no JSON. Never raises."""
        content = document.read_event(body)
        if content is UNREADABLE:
            return None
        kind = document.word(_find(content, self.type))
        shown = pointer.resolve(content, self.object)
        reference = document.reference(_find(content, self.reference))
        said, note = _conclude(shown, reference, outcome)
        return Event(
            id=document.reference(_find(content, self.id)),
            type=kind,
            wanted=self._wants(kind),
            key=document.word(_find(content, self.key)),
            reference=reference if said is None else said.reference,
            said=said,
            note=note,
        )

    def _wants(self, kind: str | None) -> bool:
        return not self.types or any(
            kind is not None and (kind.startswith(wanted[:-1]) if wanted.endswith("*") else kind == wanted)
            for wanted in self.types
        )


def _find(content: Any, tokens: Tokens | None) -> Any:
    return MISSING if tokens is None else pointer.resolve(content, tokens)


def _conclude(shown: Any, reference: str | None, outcome: Iterable[Rule]) -> tuple[Proof | None, str]:
    if shown is MISSING:
        return None, "the event shows no object"
    rule = rules.first((rule for rule in outcome if rule.says is not Says.ABSENT), Document(AS_SHOWN, {}, shown), True)
    if rule is None or rule.says not in rules.PROOFS:
        return None, "no rule takes the object for the end of anything"
    if not rule.recognises:
        # It tells a good HTTP answer from a bad one; here there is only the object.
        return None, "the rule demands nothing of the object"
    places = rule.places
    reference = places.read_reference(shown) or reference
    if places.reference is not None and reference is None and rule.says is not Says.REFUSED:
        return None, "the object has no reference"
    status, fields, note = places.read_status(shown), places.read_fields(shown), f"a rule says {rule.says}"
    if rule.says is Says.REFUSED:
        return Refused(reference, status, fields), note
    return rules.exists(rule.says, reference, status, fields), note
