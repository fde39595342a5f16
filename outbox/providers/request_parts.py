"""What a request carries beside its operation's own words: the provider key, in a header or a member of the body."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator

from idem.outbox.domain.contract import FrozenRequest, KeyRule
from idem.outbox.providers.body_encoding import is_form
from idem.outbox.providers.template import HEADER_VALUE, check_header, fill
from idem.outbox.values.errors import Unrenderable

HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

NOT_OURS_TO_SET: Final = frozenset(
    {
        "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive",
        "proxy-connection", "accept-encoding",
    }
)  # fmt: skip
"""Headers of the connection: a value of ours would break the framing, ask for a 417, or be refused when sending, where
it would count as a mistake of the configuration and stop the lane for everybody."""

CREDENTIALS: Final = frozenset({"authorization", "proxy-authorization", "cookie"})
"""Resolved when sending and never frozen."""

OF_THE_REQUEST: Final = frozenset({"accept", "content-type"})
"""Frozen into every request: an account that sets one too could make no call."""

NO_CARRIERS: Final = NOT_OURS_TO_SET | CREDENTIALS | {"content-type"}
"""Headers that can carry no provider key: they say something else."""


def _named(name: str) -> str:
    if not HEADER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a header: write it as the provider's documentation does")
    return name


HeaderName: TypeAlias = Annotated[str, AfterValidator(_named)]


def check_settable(name: str, value: str = "x", but: frozenset[str] = frozenset()) -> None:
    """Raises ValueError for a header that idem.toml cannot set here (nor those of `but`), and for a bad value."""
    if not HEADER_NAME.fullmatch(name) or name.lower() in NOT_OURS_TO_SET | but:
        raise ValueError(f"{name!r} is not a header that can be set here")
    if not HEADER_VALUE.fullmatch(value):
        raise ValueError(f"the value of {name!r} is not visible ASCII")


def check_once(names: Iterable[str]) -> None:
    """Raises ValueError for a header that is said twice: names do not differ by their case."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise ValueError(f"{name!r} is said twice: capital letters make no other header")
        seen.add(name.lower())


def headers(given: Mapping[str, str], rule: KeyRule, provider_key: str) -> dict[str, str]:
    """The headers of a request, names in lower case, with the key where a header carries it. Raises Unrenderable."""
    made: dict[str, str] = {}
    for name, value in given.items():
        lower = name.lower()
        if not HEADER_NAME.fullmatch(name) or lower in NOT_OURS_TO_SET or lower in made:
            raise Unrenderable(f"the header {name!r} cannot be set, or is there twice")
        if lower in CREDENTIALS:
            raise Unrenderable(f"the header {name!r} is a credential: it belongs to the account, and is not frozen")
        check_header(name, value)
        made[lower] = fill(value, provider_key)
    if rule.carrier == "header" and rule.name is not None:
        if rule.name.lower() in made:
            raise Unrenderable(f"the header {rule.name!r} carries the provider key and is set by idem alone")
        made[rule.name.lower()] = provider_key
    return made


def body(content: Any, rule: KeyRule, provider_key: str) -> Any:
    """The body of a request, with the key where a member carries it. Raises Unrenderable."""
    if rule.carrier != "body" or rule.name is None:
        return content
    if not isinstance(content, dict):
        raise Unrenderable(f"the provider key goes into the member {rule.name!r}, but the body is not an object")
    if content.get(rule.name, provider_key) != provider_key:
        raise Unrenderable(f"the member {rule.name!r} carries the provider key and is set by idem alone")
    return {**content, rule.name: provider_key}


def carried(request: FrozenRequest, rule: KeyRule, provider_key: str) -> bool:
    """Whether a request that was frozen earlier carries the key where the contract of now expects it.

    Where it does not, the provider has not learned this key from it: a second send would be executed, and nothing that
    is found under the key, or not found, speaks of this request. A request that was imported has its headers' names and
    its media type as the system before has sent them.
    """
    headers = {name.lower(): value for name, value in request.headers.items()}
    match rule.carrier:
        case "argument":
            return True
        case "header":
            return rule.name is not None and headers.get(rule.name.lower()) == provider_key
        case "body":
            if is_form(headers):
                return f"{rule.name}={provider_key}".encode() in request.body.split(b"&")
            try:
                content = json.loads(request.body) if request.body else None
            except (ValueError, RecursionError):
                return False
            return isinstance(content, dict) and content.get(rule.name) == provider_key
        case "none":
            return False


def named(request: FrozenRequest, rule: KeyRule, provider_key: str) -> bool:
    """Whether the path or the body names the key, as a reference that the provider gives back; its carrier does not."""
    body = request.body
    if rule.carrier == "body":
        body = body.replace(f'"{rule.name}":"{provider_key}"'.encode(), b"").replace(
            f"{rule.name}={provider_key}".encode(), b""
        )
    return provider_key.encode() in body or provider_key in request.path


def question_headers(headers: Mapping[str, str], rule: KeyRule, keys: Iterable[str]) -> dict[str, str]:
    """The headers of a frozen request that a question about it says too: all but what belongs to the write itself."""
    ours = set(keys)
    left_out = OF_THE_REQUEST | {(rule.name or "").lower()}
    return {
        name: value
        for name, value in headers.items()
        if name not in left_out and not any(key and key in value for key in ours)
    }
