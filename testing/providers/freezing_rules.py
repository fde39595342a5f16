"""The frozen request: the same bytes every time, with the key and the deployment tag, without a credential."""

import copy
import json
from typing import Any
from urllib.parse import parse_qsl, unquote_plus
from uuid import uuid4

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.request_parts import CREDENTIALS
from idem.outbox.values import json_pointer
from idem.testing.providers.calls import Calls
from idem.testing.providers.errors import applies, must, world_must

SHORTEST_SECRET = 4
"""Characters. A shorter secret may be in a request by chance."""


class FreezingRules:
    """Rules about `Provider.freeze`."""

    def test_freezing_again_gives_the_same_bytes(self, calls: Calls) -> None:
        """A replay sends the stored bytes, and accept must also render the same bytes if it renders twice."""
        key = str(uuid4())
        first = calls.freeze(key)
        again = calls.freeze(key, copy.deepcopy(calls.world.request))
        must(first == again, "freeze", "the same request was frozen to different bytes the second time")

    def test_nothing_but_the_key_differs_between_two_calls(self, calls: Calls) -> None:
        """Otherwise it depends on a clock or on chance, and a replay is a different request to the provider."""
        one, other = str(uuid4()), str(uuid4())
        first, second = calls.freeze(one), calls.freeze(other)
        must(_with(first, one, other) == second, "freeze", "two keys give requests that differ in more than the key")

    def test_the_key_travels_where_the_contract_says(self, calls: Calls) -> None:
        """In a header or a body field, complete and once."""
        key = str(uuid4())
        rule, frozen = calls.contract.key, calls.freeze(key)
        applies(rule.carrier != "none", "key.carrier is none: the request has no key")
        if rule.carrier == "argument":
            found = [text for text in frozen.headers.values() if text == key]
            must(found == [key], "key.carrier", "the function would not get the key")
        elif rule.carrier == "header":
            found = [text for name, text in frozen.headers.items() if name.lower() == str(rule.name).lower()]
            must(found == [key], "key.name", f"the header {rule.name} carries {found or 'nothing'} instead of the key")
        else:
            members = _members(frozen)
            world_must(members is not None, "the body is neither a JSON object nor a form, so its key cannot be found")
            found = [] if members is None else [members[str(rule.name)]] if str(rule.name) in members else []
            must(found == [key], "key.name", f"the member {rule.name} carries {found or 'nothing'} instead of the key")

    def test_no_credential_is_frozen(self, calls: Calls) -> None:
        """Frozen requests are stored; idem adds credentials when it sends."""
        frozen = calls.freeze(str(uuid4()))
        named = sorted(CREDENTIALS & {name.lower() for name in frozen.headers})
        must(not named, "headers", f"a frozen request carries {', '.join(named)}")
        written = [frozen.path, *frozen.headers.values(), frozen.body.decode("utf-8", "replace")]
        for name, text in calls.account.credentials.items():
            secret = text.rpartition(" ")[2]
            leaks = len(secret) >= SHORTEST_SECRET and any(secret in each for each in written)
            must(not leaks, "accounts", f"the credential of the header {name} is in the frozen request")

    def test_the_tag_is_in_the_request(self, calls: Calls) -> None:
        """By it the provider's lists and events show which objects are this deployment's."""
        key = str(uuid4())
        deployment = calls.contract.deployment
        applies(deployment is not None, "deployment_tag is not set")
        frozen = calls.freeze(key)
        tag = calls.provider.tag if isinstance(calls.provider, HttpProvider) else None
        applies(tag is None or tag.belongs(frozen.path), f"deployment_tag.not_in: calls to {frozen.path} carry none")
        text = unquote_plus(frozen.body.decode("utf-8", "replace")) + unquote_plus(frozen.path)
        must(str(deployment) in text, "deployment_tag.at", f"the tag {deployment} is not in the request")
        if tag is not None and tag.key_at is not None:
            where = json_pointer.render(tag.key_at)
            must(key in text, "deployment_tag.key_at", f"the key is not in the body, where {where} should be")


def _with(frozen: FrozenRequest, key: str, other: str) -> FrozenRequest:
    """The same request with another key in all places."""
    headers = {name: text.replace(key, other) for name, text in frozen.headers.items()}
    body = frozen.body.replace(key.encode(), other.encode())
    return FrozenRequest(frozen.method, frozen.path.replace(key, other), headers, body)


def _members(frozen: FrozenRequest) -> dict[str, Any] | None:
    text = frozen.body.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except ValueError:
        return dict(parse_qsl(text, keep_blank_values=True)) or None
    return found if isinstance(found, dict) else None
