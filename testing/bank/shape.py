"""The API of an account that imitates another provider instead of the bank's own API."""

import copy
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from idem.outbox.values import json_pointer
from idem.testing.bank.answers import BankAnswer, encoded, refusal

Pointer = tuple[str, ...]
"""The tokens of a JSON pointer."""

Members = tuple[tuple[Pointer, Any], ...]


@dataclass(frozen=True)
class StatusWords:
    """How the API shows a payment in one of the bank's statuses: `http` is the HTTP status when it is made, `members`
    are the values and their places. `id_at`: further places of the payment's id. `named`: members to fill in if the
    payment itself has no value there."""

    http: int
    members: Members = ()
    id_at: tuple[Pointer, ...] = ()
    named: Members = ()


@dataclass(frozen=True)
class BankLookup:
    """One way to look up. `target` is a regular expression for the whole target; its groups are the values asked for.

    `object`: the place of the payment in the answer; it is an item of a list if its last token is a number. `match`:
    the member of the payment that holds the value asked for. `nothing`: the answer if there is no such payment.
    """

    target: str
    object: Pointer = ()
    match: Pointer | None = None
    nothing: StatusWords = StatusWords(404)


@dataclass(frozen=True)
class BankShape:
    """An API that accepts orders at every path by every method except GET, with any body, and has these `lookups`.

    `says` is by the bank's own status; `errors`: further places for the members of the bank's errors (`code`,
    `message`, `type`). A payment shows all members of the order that made it.
    """

    says: Mapping[str, StatusWords]
    errors: Mapping[str, Pointer]
    lookups: tuple[BankLookup, ...] = ()

    @classmethod
    def own(cls) -> "BankShape":
        """The bank's own form, at every path."""
        return cls({}, {})

    def shown(self, own: Mapping[str, Any], ordered: Mapping[str, Any]) -> dict[str, Any]:
        """The payment as this API shows it; `own` is the bank's form."""
        document = copy.deepcopy({**own, **ordered, "id": own["id"], "status": own["status"]})
        said = self.says.get(own["status"])
        if said is not None:
            for at, value in said.named:
                if json_pointer.resolve(document, at) is json_pointer.MISSING:
                    document = put(document, at, value)
            for at, value in (*said.members, *((at, own["id"]) for at in said.id_at)):
                document = put(document, at, value)
        return document

    def made(self, own: Mapping[str, Any], ordered: Mapping[str, Any], payment: str, status: int) -> BankAnswer:
        """The answer to the order; `status` is the HTTP status if this API defines none."""
        said = self.says.get(own["status"])
        declined = own["status"] == "declined"
        status = said.http if said is not None else 402 if declined else status
        document = self.shown(own, ordered)
        if declined and status >= 400:
            error = {"type": "card_error", "code": "card_declined", "message": "The card was declined."}
            document = self._with_error({"error": error, **document}, error)
        return BankAnswer(status, encoded(document), {}, "replayed", payment)

    def dressed(self, answer: BankAnswer) -> BankAnswer:
        """An error of the bank with this API's members."""
        try:
            document = json.loads(answer.body)
        except ValueError:
            return answer
        error = document.get("error") if isinstance(document, dict) else None
        if answer.status < 400 or not isinstance(error, dict):
            return answer
        return replace(answer, body=encoded(self._with_error(document, error)))

    def asked(self, target: str) -> tuple[BankLookup, list[str]] | None:
        """The look-up that matches this target, and the values asked for; None if none matches."""
        for lookup in self.lookups:
            if match := re.fullmatch(lookup.target, target):
                return lookup, [unquote(group) for group in match.groups()]
        return None

    def _with_error(self, document: dict[str, Any], error: Mapping[str, Any]) -> dict[str, Any]:
        for member, at in self.errors.items():
            document = put(document, at, error.get(member, member))
        return document


def answered(lookup: BankLookup, wanted: Sequence[str], found: Iterable[dict[str, Any]]) -> BankAnswer:
    """The answer to a look-up that found these payments."""
    objects = [put(each, lookup.match, wanted[0]) if lookup.match and wanted else each for each in found]
    if not objects:
        if lookup.nothing.http >= 400:
            return refusal(lookup.nothing.http, "not_found", "There is no such payment.")
        document: Any = {}
        for at, value in lookup.nothing.members:
            document = put(document, at, value)
        return BankAnswer(lookup.nothing.http, json.dumps(document).encode())
    if lookup.object and lookup.object[-1].isdecimal():
        return BankAnswer(200, json.dumps(put({}, lookup.object[:-1], objects)).encode())
    return BankAnswer(200, json.dumps(put({}, lookup.object, objects[0])).encode())


def put(document: Any, at: Pointer, value: Any) -> Any:
    """The document with this value at this place, which is created if needed."""
    if not at:
        return value
    head, rest = at[0], at[1:]
    if head.isdecimal() and not isinstance(document, dict):
        items = list(document) if isinstance(document, list) else []
        items += [{} for _ in range(int(head) + 1 - len(items))]
        items[int(head)] = put(items[int(head)], rest, value)
        return items
    members = dict(document) if isinstance(document, dict) else {}
    members[head] = put(members.get(head), rest, value)
    return members
