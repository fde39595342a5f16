"""`page` of a list in idem.toml: how a provider's list goes on after a page of it. No I/O.

A list that breaks off, goes in a circle or is too long was not read as a whole: what is not on its pages may still be
there. So only what the provider itself calls the end of the list is the end.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote, unquote_plus, urljoin, urlsplit

from pydantic import Field, model_validator

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.providers import response
from idem.outbox.providers.response import Document
from idem.outbox.providers.template import check_path
from idem.outbox.values import json_pointer
from idem.outbox.values.errors import Unrenderable
from idem.outbox.values.json_pointer import MISSING, Tokens
from idem.outbox.values.settings_base import Pointer, Section

Style: TypeAlias = Literal["after_id", "cursor", "link", "offset"]

MOST: Final = 20

LONGEST_CURSOR: Final = 4096
"""Characters of a cursor: longer ones fit into no request line."""

ORIGINS: Final = {"http": 80, "https": 443}

TARGET: Final = re.compile(r"\s*<([^<>]*)>")
PARAMETER: Final = re.compile(r"\s*;\s*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)(?:\s*=\s*(\"(?:[^\"\\]|\\.)*\"|[^\s\",;]+))?")
BETWEEN: Final = re.compile(r"\s*(?:,\s*)+|\s*$")


class BrokenList(Exception):
    """The list goes on and cannot be followed, so that what was seen of it is not all. The text says why."""


@dataclass(frozen=True, slots=True)
class NextPage(FrozenRequest):
    """A page after the first: `first` is the path of that one, `number` counts from 1."""

    first: str = ""
    number: int = 2


NEEDED: Final[Mapping[Style, frozenset[str]]] = {
    "after_id": frozenset({"parameter"}),
    "cursor": frozenset({"parameter", "next"}),
    "link": frozenset(),
    "offset": frozenset({"parameter"}),
}

OF_STYLE: Final[Mapping[Style, frozenset[str]]] = {
    "after_id": frozenset({"parameter", "id"}),
    "cursor": frozenset({"parameter", "next"}),
    "link": frozenset({"next"}),
    "offset": frozenset({"parameter", "step", "first"}),
}


class Paging(Section):
    """How a list goes on. What is on none of its pages is not there; what was not read to its end says nothing."""

    style: Style
    """"after_id": the id of the last item is a query parameter; "cursor": a text of the answer is; "link": the answer
    names the next address; "offset": a number is."""
    parameter: str = Field(default="", min_length=1)
    """Name of the query parameter, e.g. starting_after; no default."""
    next: Pointer | None = None
    """JSON pointer to the cursor, e.g. "/cursor", or to the next address; missing or null there is the end. Default for
    link: the Link header (rel=next). An address elsewhere than at the accounts of this provider is not followed."""
    more: Pointer | None = None
    """JSON pointer to what is true while the list goes on, e.g. "/has_more"; default none: an empty page is the end, or
    one that names no next."""
    id: Pointer = ("id",)
    """For after_id: JSON pointer, inside an item, to its id; default "/id"."""
    step: Literal["items", "pages"] = "items"
    """For offset: what the number counts, "items" (default) or "pages"."""
    first: int = Field(default=0, ge=0)
    """For offset: the number of the first page; default 0."""
    omits_empty: bool = False
    """Whether an empty list is left out of the answer, as with Square; default false: an answer without the list says
    nothing."""
    most: int | None = Field(default=None, ge=1)
    """Pages that are read; default 20, for the ledger check 1000. A longer list could not be asked."""

    @model_validator(mode="after")
    def _fits_its_style(self) -> Paging:
        said = self.model_fields_set & {"parameter", "next", "id", "step", "first"}
        if missing := sorted(NEEDED[self.style] - said):
            raise ValueError(f'page: style "{self.style}" needs {" and ".join(missing)}')
        if unused := sorted(said - OF_STYLE[self.style]):
            raise ValueError(f'page: style "{self.style}" has no {" and no ".join(unused)}')
        if not self.id:
            raise ValueError("page: id is a member of the item, not the whole of it")
        return self

    def following(
        self,
        answer: Document,
        items: Sequence[Any],
        request: FrozenRequest,
        origins: Collection[str],
        most: int = MOST,
    ) -> NextPage | None:
        """The page after this one; None: it was the last. `origins` are those that a link may lead to, `most` the
        pages that are read where the contract says nothing.

        Raises BrokenList.
        """
        path = self._path(answer, items, request, origins)
        if path is None:
            return None
        try:
            check_path(path)
        except Unrenderable:
            raise BrokenList("the next page of the list has an address that cannot be asked for") from None
        first, number = (request.first, request.number) if isinstance(request, NextPage) else (request.path, 1)
        most = most if self.most is None else self.most
        if number >= most:
            raise BrokenList(f"the list is longer than the {most} pages that are read")
        if path in (request.path, first):
            raise BrokenList("the list is circular")
        return NextPage(request.method, path, request.headers, request.body, first, number + 1)

    def _path(
        self, answer: Document, items: Sequence[Any], request: FrozenRequest, origins: Collection[str]
    ) -> str | None:
        said = self._said_more(answer)
        if said is False:
            return None
        match self.style:
            case "after_id":
                if items:
                    last = response.reference(json_pointer.resolve(items[-1], self.id))
                    if last is None:
                        raise BrokenList("the last item of the page has no id to go on from")
                    return with_parameter(request.path, self.parameter, last)
            case "offset":
                if items:
                    begun = _number(request.path, self.parameter, self.first)
                    step = 1 if self.step == "pages" else len(items)
                    return with_parameter(request.path, self.parameter, str(begun + step))
            case "cursor":
                if (cursor := _cursor(answer.find(self.next))) is not None:
                    return with_parameter(request.path, self.parameter, cursor)
            case "link":
                found = _next(answer.headers.get("link", "")) if self.next is None else _address(answer.find(self.next))
                if found is not None:
                    return _same_origin(found, request.path, origins)
        if said:
            raise BrokenList("the list is said to go on, but not where")
        return None

    def _said_more(self, answer: Document) -> bool | None:
        if self.more is None:
            return None
        found = answer.find(self.more)
        if not isinstance(found, bool):
            raise BrokenList(f"{json_pointer.render(self.more)} does not say whether the list goes on")
        return found


def listed(answer: Document, at: Tokens, page: Paging | None) -> list[Any] | None:
    """The items of a page; None for an answer that shows no list."""
    found = answer.find(at)
    if found is MISSING and page is not None and page.omits_empty and at and isinstance(answer.find(at[:-1]), dict):
        return []
    return found if isinstance(found, list) else None


def begins(request: FrozenRequest, first: FrozenRequest) -> bool:
    """Whether the request is this one, or a later page of its list."""
    return request == first or (isinstance(request, NextPage) and request.first == first.path)


def with_parameter(path: str, name: str, value: str) -> str:
    """The path with this parameter in its query, in the place of any that it had; the rest byte for byte."""
    base, _, query = path.partition("?")
    kept = [part for part in query.split("&") if part and _name(part) != name]
    return f"{base}?{'&'.join([*kept, '='.join((quote(name, safe=''), quote(value, safe='')))])}"


def _name(part: str) -> str:
    return unquote_plus(part.partition("=")[0])


def _number(path: str, name: str, default: int) -> int:
    for part in path.partition("?")[2].split("&"):
        if _name(part) == name:
            text = unquote_plus(part.partition("=")[2])
            if not re.fullmatch(r"[0-9]{1,15}", text):
                raise BrokenList(f"the query parameter {name} is not a number to count on from")
            return int(text)
    return default


def _cursor(found: Any) -> str | None:
    if found is MISSING or found is None or found == "":
        return None
    text = str(found) if isinstance(found, int) and not isinstance(found, bool) else found
    if not isinstance(text, str) or len(text) > LONGEST_CURSOR or not response.VISIBLE.fullmatch(text):
        raise BrokenList("the cursor of the next page is not text that a request can carry")
    return text


def _address(found: Any) -> str | None:
    if found is MISSING or found is None or found == "":
        return None
    if not isinstance(found, str):
        raise BrokenList("the address of the next page is not text")
    return found


def _next(header: str) -> str | None:
    """The target of `rel="next"` in a Link header."""
    targets = {target for target, relations in _links(header) if "next" in relations}
    if len(targets) > 1:
        raise BrokenList("the Link header names several next pages")
    return next(iter(targets), None)


def _links(header: str) -> Iterator[tuple[str, list[str]]]:
    at = 0
    while at < len(header):
        target = TARGET.match(header, at)
        if target is None:
            raise BrokenList("the Link header cannot be read")
        at = target.end()
        parameters: dict[str, str] = {}
        while (found := PARAMETER.match(header, at)) is not None:
            at = found.end()
            # RFC 8288 3.3: of several, the first counts.
            parameters.setdefault(found[1].lower(), (found[2] or "").strip('"'))
        between = BETWEEN.match(header, at)
        if between is None:
            raise BrokenList("the Link header cannot be read")
        at = between.end()
        # With an anchor it is the link of another resource.
        if "anchor" not in parameters:
            yield target[1], parameters.get("rel", "").lower().split()


def _same_origin(address: str, path: str, origins: Collection[str]) -> str:
    """The path of the next page. Raises BrokenList for another origin, which must not get our credentials."""
    try:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            if parts.username is not None or _origin(address) not in {_origin(each) for each in origins}:
                raise BrokenList("the next page of the list is at another origin than the account's")
            target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        else:
            target = urljoin(path, address.partition("#")[0])
    except ValueError:
        raise BrokenList("the address of the next page cannot be read") from None
    return quote(target, safe="/?%:@!$&'()*+,;=-._~")


def _origin(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    return parts.scheme, parts.hostname, parts.port if parts.port is not None else ORIGINS.get(parts.scheme)
