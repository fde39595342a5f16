"""Turns a case's request into the bytes to send."""

import base64
import hmac
import json
import re
import time
from collections.abc import Mapping
from typing import Any, TypeAlias

from idem.testing.conformance.driver import ConformanceWorld
from idem.testing.conformance.wire import Header

SaidByCase: TypeAlias = Mapping[str, Any]
Written: TypeAlias = tuple[str, str, list[Header], bytes | None, dict[str, Any]]

PLACE = re.compile(r"\$\{([a-z_.]+)\}")


def written(said: SaidByCase, world: ConformanceWorld, *, to: str) -> Written:
    """Method, path, headers, body and options of `Client.send`. `to` is the case's operation.

    Raises LookupError if the target has no such operation.
    """
    method = said.get("method", "POST")
    path = filled(said["path"], world) if "path" in said else operation_path(world, said.get("to", to))
    if query := said.get("query"):
        path += "?" + filled(query, world)
    body = _body(said["body"], world) if "body" in said else _usual_body(method, world)
    headers: list[Header] = []
    headers += [("Authorization", value) for value in _tokens(said, world)]
    if method == "POST" or "key" in said:
        headers += [(world.target.key_header, value) for value in _texts(said.get("key", "${key}"), world)]
    if body is not None or "content_type" in said:
        headers += [("Content-Type", value) for value in _texts(said.get("content_type", "application/json"), world)]
    for name, value in said.get("headers", ()):
        headers += [(name, text) for text in _texts(value, world)]
    if "signed" in said:
        headers += _signature(said["signed"], world, body or b"")
    options = {name: said[name] for name in ("host", "length", "hang_up_after") if name in said}
    return method, path, headers, body, options


def operation_path(world: ConformanceWorld, name: str) -> str:
    """The path of an operation. Raises LookupError if the target has no operation of this name."""
    path = world.target.operations.get(name)
    if path is None:
        raise LookupError(f"the target has no operation {name}")
    return path


def filled(text: str, world: ConformanceWorld) -> str:
    """The text with the values of `${key}`, `${intent}` etc. Raises LookupError if a name is not defined."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        known = {"key": world.key, "other_key": f"{world.key}-2", "intent": world.intent}
        if name.startswith("answer."):
            _, answer, member = name.split(".", 2)
            known[name] = str(world.answers[answer].json()[member])
        if name.startswith("name."):
            known[name] = operation_path(world, name.removeprefix("name.")).rpartition("/")[2]
        if (found_value := known.get(name)) is None:
            raise LookupError(f"${{{name}}} is not defined")
        return found_value

    return PLACE.sub(value, text)


def _texts(said: Any, world: ConformanceWorld) -> list[bytes]:
    """The values of a header: none for null, one for a text, several for a list of texts."""
    match said:
        case None:
            return []
        case str():
            return [filled(said, world).encode("utf-8", "surrogateescape")]
        case {"repeat": str() as text, "times": int() as times, **more}:
            return [f"{more.get('before', '')}{text * times}{more.get('after', '')}".encode()]
        case {"padded_to": int() as length, **more}:
            text = world.key.ljust(length, "k")
            return [f'"{text}"'.encode() if more.get("quoted") else text.encode()]
        case {"hex": str() as digits}:
            return [bytes.fromhex(digits)]
        case list():
            return [value for each in said for value in _texts(each, world)]
    raise ValueError(f"{said!r} is not a header value")


def _tokens(said: SaidByCase, world: ConformanceWorld) -> list[bytes]:
    match said.get("token", "own"):
        case "own":
            return [] if world.token is None else [f"Bearer {world.token}".encode()]
        case "other":
            if world.target.other_token is None:
                raise LookupError("the target has no other_token of a second tenant")
            return [f"Bearer {world.target.other_token}".encode()]
        case None:
            return []
        case "twice":
            return [f"Bearer {world.token}".encode()] * 2
        case {"scheme": str() as scheme}:
            return [f"{scheme} {world.token}".encode()]
        case raw:
            return _texts(raw, world)


def _usual_body(method: str, world: ConformanceWorld) -> bytes | None:
    return compact(world.target.bodies["body"]) if method == "POST" else None


def _body(said: Any, world: ConformanceWorld) -> bytes | None:
    match said:
        case None:
            return None
        case {"use": str() as name}:
            if name not in world.target.bodies:
                raise LookupError(f"the target has no body named {name}")
            value = world.target.bodies[name]
            return spelled_differently(value) if said.get("spelled") == "differently" else compact(value)
        case {"json": value}:
            return filled(compact(value).decode(), world).encode()
        case {"text": str() as text}:
            return text.encode()
        case {"hex": str() as digits}:
            return bytes.fromhex(digits)
        case {"nested": int() as depth}:
            return b"[" * depth + b"]" * depth
        case {"padded_to": int() as size}:
            return compact(world.target.bodies["body"]).ljust(size)
        case {"beyond_the_limit": int() as more}:
            return compact(world.target.bodies["body"]).ljust(world.target.max_body + more)
    raise ValueError(f"{said!r} is not a body")


def _signature(how: str, world: ConformanceWorld, body: bytes) -> list[Header]:
    """The headers of Standard Webhooks. `how`: rightly, wrongly (another secret), long ago (an old time stamp)."""
    if world.target.webhook_secret is None:
        raise LookupError("the target has no webhook_secret")
    secret = base64.b64decode(world.target.webhook_secret.removeprefix("whsec_"))
    if how == "wrongly":
        secret = secret[::-1] + b"x"
    at = int(time.time()) - (86400 if how == "long ago" else 0)
    event = f"msg_{world.key}"
    digest = hmac.digest(secret, f"{event}.{at}.".encode() + body, "sha256")
    return [
        ("webhook-id", event.encode()),
        ("webhook-timestamp", str(at).encode()),
        ("webhook-signature", b"v1," + base64.b64encode(digest)),
    ]


def compact(value: Any) -> bytes:
    """JSON without spaces, in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def spelled_differently(value: Any) -> bytes:
    """The same JSON value: members in reverse order, with spaces, and every character beyond ASCII escaped."""

    def reversed_members(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {name: reversed_members(inner[name]) for name in reversed(inner)}
        return [reversed_members(each) for each in inner] if isinstance(inner, list) else inner

    return (json.dumps(reversed_members(value), indent=3) + "\n").encode()
