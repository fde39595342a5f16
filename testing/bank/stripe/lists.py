"""Lists, newest first and page by page."""

import operator
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from idem.testing.bank.records import Changed
from idem.testing.bank.stripe.params import number
from idem.testing.bank.stripe.refusals import StripeError

LIMIT, LIMIT_MAX, TYPES_MAX = 10, 100, 20
_PAGING = frozenset({"limit", "starting_after", "ending_before", "created", "expand"})
# The filters that Stripe documents; other kinds of objects can be filtered by any of their members.
_FILTERS: Mapping[str, frozenset[str]] = {
    "payment_intent": frozenset({"customer"}),
    "charge": frozenset({"customer", "payment_intent", "transfer_group"}),
    "refund": frozenset({"charge", "payment_intent"}),
    "payout": frozenset({"status", "destination"}),
}
_WAYS: Mapping[str, Callable[[int, int], bool]] = {
    "gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le,
}  # fmt: skip


def listed(
    kind: str, url: str, query: Mapping[str, Any], objects: Iterable[dict[str, Any]], get: Callable[[str], Any]
) -> dict[str, Any]:
    """The page of `GET /v1/{collection}`; `get` returns the object of an id, or None.

    Raises:
        StripeError: the query is invalid.
    """
    filters = {name: value for name, value in query.items() if name not in _PAGING}
    _known(filters, _FILTERS.get(kind, filters))
    wanted = _created(query)
    found = (
        each
        for each in objects
        if wanted(each["created"]) and all(each.get(name) == value for name, value in filters.items())
    )
    return _page(url, query, list(found), get)


def events_listed(
    query: Mapping[str, Any], events: Iterable[Changed], show: Callable[[Changed], dict[str, Any]]
) -> dict[str, Any]:
    """The page of `GET /v1/events`.

    Raises:
        StripeError: the query is invalid.
    """
    _known(query, _PAGING | {"type", "types", "delivery_success"})
    patterns = query.get("types", [])
    if not isinstance(patterns, list) or len(patterns) > TYPES_MAX or ("type" in query and patterns):
        raise StripeError.invalid(f"types takes up to {TYPES_MAX} names, and not together with type.", None, "types")
    patterns = [query["type"]] if "type" in query else patterns
    wanted = _created(query)
    kept = [
        each
        for each in events
        if wanted(int(each.at)) and (not patterns or any(fnmatchcase(each.type or "", str(one)) for one in patterns))
    ]
    page = _page("/v1/events", query, [{"id": each.id, "change": each} for each in kept], None)
    return {**page, "data": [show(each["change"]) for each in page["data"]]}


def _known(given: Iterable[str], names: Iterable[str]) -> None:
    if unknown := sorted(set(given) - set(names)):
        raise StripeError.invalid(f"Received unknown parameter: {unknown[0]}", "parameter_unknown", unknown[0])


def _page(
    url: str, query: Mapping[str, Any], found: list[dict[str, Any]], get: Callable[[str], Any] | None
) -> dict[str, Any]:
    limit = _limit(query)
    places = {each["id"]: place for place, each in enumerate(found)}
    if "starting_after" in query and "ending_before" in query:
        raise StripeError.invalid("You cannot parameterize both starting_after and ending_before.")

    def place(name: str) -> int:
        if query[name] in places:
            return places[query[name]]
        if get is not None and get(str(query[name])) is not None:
            raise StripeError.invalid(f"{name} is not among what the other parameters leave.", None, name)
        raise StripeError.invalid(f"No such object: '{query[name]}'", "resource_missing", name)

    if "ending_before" in query:
        newer = found[: place("ending_before")]
        data, more = newer[-limit:], len(newer) > limit
    else:
        older = found[place("starting_after") + 1 :] if "starting_after" in query else found
        data, more = older[:limit], len(older) > limit
    return {"object": "list", "url": url, "has_more": more, "data": data}


def _limit(query: Mapping[str, Any]) -> int:
    limit = number(query, "limit")
    limit = LIMIT if limit is None else limit
    if not 1 <= limit <= LIMIT_MAX:
        raise StripeError.invalid(f"limit must be 1 to {LIMIT_MAX}.", "parameter_invalid_integer", "limit")
    return limit


def _created(query: Mapping[str, Any]) -> Callable[[int], bool]:
    given = query.get("created", {})
    bounds = given if isinstance(given, Mapping) else {"gte": given, "lte": given}
    if not isinstance(given, (Mapping, str)) or set(bounds) - set(_WAYS):
        raise StripeError.invalid("Invalid created: expected gt, gte, lt, lte.", None, "created")
    moments = {name: number(bounds, name) for name in bounds}
    return lambda at: all(bound is None or _WAYS[name](at, bound) for name, bound in moments.items())
