"""What reads the words of others takes at most twice the steps for twice as much, of each shape that could cost more.

Every place of the code that parses JSON stands in the table, or the test says which one does not.
"""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from costs.steps import grows_with_the_square, steps
from fix_source import texts

from idem.outbox.api import suspicious
from idem.outbox.config.params_validation import validator
from idem.outbox.domain import keys
from idem.outbox.domain.contract import FrozenRequest, Response
from idem.outbox.domain.webhook import Signed, verify
from idem.outbox.providers import batches, body_encoding, events, pages, response
from idem.outbox.providers.reading import Facts
from idem.outbox.providers.schemes.adyen import AdyenSignatures
from idem.outbox.providers.schemes.gocardless import GoCardlessSignatures
from idem.outbox.providers.schemes.hmac_sha256 import HmacSha256
from idem.outbox.providers.schemes.square import SquareSignatures
from idem.outbox.providers.schemes.standard import StandardWebhooks
from idem.outbox.providers.schemes.stripe import StripeSignatures
from idem.outbox.providers.webhook_settings import WebhookSettings
from idem.outbox.values import canonical, card_data, json_pointer, storable

SHAPES: dict[str, Callable[[int], bytes]] = {
    "brackets and an unclosed string": lambda n: b"[]" * 70 + b'"' + b'\\"' * n,
    "deep": lambda n: b"[" * n + b"]" * n,
    "wide": lambda n: b"[" + b",".join([b"[]"] * n) + b"]",
    "deep and wide": lambda n: b"[" * 40 + b",".join([b"[]"] * n) + b"]" * 40,
    "members": lambda n: b"{" + b",".join(b'"m%d":1' % each for each in range(n)) + b"}",
    "the same member": lambda n: b"{" + b",".join([b'"m":1'] * n) + b"}",
    "whole numbers": lambda n: b"[" + b",".join([b"1"] * n) + b"]",
    "fractions": lambda n: b"[" + b",".join([b"1.5"] * n) + b"]",
    "a long whole number": lambda n: b"[" + b"1" * n + b"]",
    "a long fraction": lambda n: b"[1." + b"1" * n + b"]",
    "a long exponent": lambda n: b"[1e" + b"9" * n + b"]",
    "escapes": lambda n: b'["' + b"\\n" * n + b'"]',
    "surrogates": lambda n: b'["' + b"\\ud800" * n + b'"]',
    "an unclosed string": lambda n: b'["' + b"a" * n,
    "quotes": lambda n: b'"' * n,
    "backslashes": lambda n: b'["' + b"\\" * n,
    "groups of digits": lambda n: b'["' + b"4 4 4 4-" * n + b'"]',
    "spaces": lambda n: b" " * n + b"[" + b" " * n,
    "commas": lambda n: b"," * n,
}


def client(body: bytes) -> Any:
    """Everything that is done to a client's body before the database is asked."""
    value = canonical.parse(body)
    canonical.check(value)
    card_data.find(value)
    keys.fingerprint("pay", value)
    return body_encoding.encoded({"a": value}, "form")


def answer(body: bytes) -> Any:
    return storable.fields({"body": response.read(Response(200, {}, body)).body})


LISTING = WebhookSettings(event_id=(("id",),), events=("a",))
READERS: dict[str, Callable[[bytes], Any]] = {
    "a client's body": client,
    "a provider's answer": answer,
    "an event": lambda body: events.read(WebhookSettings(event_id=(("id",),)), body, Facts(())),
    "a batch": lambda body: events.read(LISTING, b'{"a":' + body + b"}", Facts(())),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reader", READERS)
def test_a_body_takes_steps_as_it_is_long(reader: str, shape: str) -> None:
    read, make = READERS[reader], SHAPES[shape]
    assert not grows_with_the_square(lambda n: steps(lambda: read(make(n))), 400)


def schema(keyword: str, value: Any) -> Callable[[Any], None]:
    return validator({keyword: value})


MIXED: Callable[[int], Any] = lambda n: [[i] if i % 2 else {"a": i} for i in range(n)]  # noqa: E731
NAMED: Callable[[int], Any] = lambda n: {f"m{i}": i for i in range(n)}  # noqa: E731
KEYWORDS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "uniqueItems": (True, MIXED),
    "unevaluatedItems": (False, MIXED),
    "unevaluatedProperties": (False, NAMED),
    "additionalProperties": ({"type": "string"}, NAMED),
    "patternProperties": ({"^m[0-9]+$": {"type": "integer"}}, NAMED),
    "propertyNames": ({"maxLength": 3}, NAMED),
    "contains": ({"const": "x"}, MIXED),
    "enum": ([1, 2, 3], MIXED),
    "anyOf": ([{"items": {"type": "string"}}, {"maxItems": 3}], MIXED),
    "oneOf": ([{"items": {"type": "array"}}, {"minItems": 1}], MIXED),
    "items": ({"anyOf": [{"type": "string"}, {"type": "object", "minProperties": 2}]}, MIXED),
}


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_a_keyword_of_a_schema_takes_steps_as_the_params_are_many(keyword: str) -> None:
    value, make = KEYWORDS[keyword]
    validate = schema(keyword, value)
    assert not grows_with_the_square(lambda n: steps(lambda: validate(make(n))), 100)


HEADERS: dict[str, tuple[Any, bytes, Callable[[int], bytes]]] = {
    "stripe": (StripeSignatures(), b"stripe-signature", lambda n: b"t=1," + b"v1=aa," * n),
    "stripe, no list": (StripeSignatures(), b"stripe-signature", lambda n: b"," * n),
    "standard": (StandardWebhooks(), b"webhook-signature", lambda n: b"v1,aa " * n),
    "standard, no list": (StandardWebhooks(), b"webhook-signature", lambda n: b"," * n),
    "hmac-sha256": (HmacSha256(b"x-signature"), b"x-signature", lambda n: b"a" * n),
    "gocardless": (GoCardlessSignatures(), b"webhook-signature", lambda n: b"a" * n),
    "square": (SquareSignatures(), b"x-square-hmacsha256-signature", lambda n: b"a" * n),
}


@pytest.mark.parametrize("scheme", HEADERS)
def test_a_signature_takes_steps_as_it_is_long(scheme: str) -> None:
    verifier, name, make = HEADERS[scheme]

    def cost(n: int) -> int:
        given = ((b"webhook-id", b"a" * n), (b"webhook-timestamp", b"1"), (name, make(n)))
        return steps(lambda: verify(verifier, Signed(given, b"{}", "https://example.com/hook"), [b"k" * 32] * 2, 1.0))

    assert not grows_with_the_square(cost, 200)


def test_a_signed_batch_takes_steps_as_it_is_long() -> None:
    def batch(n: int) -> bytes:
        item = {"NotificationRequestItem": {
            "pspReference": "p", "merchantAccountCode": "m", "merchantReference": "r", "eventCode": "AUTHORISATION",
            "success": "true", "amount": {"value": 1, "currency": "EUR"},
            "additionalData": {"hmacSignature": base64.b64encode(b"x" * 32).decode()},
        }}  # fmt: skip
        return json.dumps({"notificationItems": [item] * n}).encode()

    scheme, secret = AdyenSignatures(), [b"k" * 32]
    assert not grows_with_the_square(lambda n: steps(lambda: verify(scheme, Signed((), batch(n)), secret, 1.0)), 50)


def test_a_batch_is_cut_into_parts_that_together_stay_small() -> None:
    around = b'"w":"' + b"w" * 100_000 + b'"'
    body = b'{"a":[' + b",".join([b"1"] * 100) + b"]," + around + b"}"
    parts = batches.alone(body, ("a",))
    assert parts is None or sum(map(len, parts)) <= batches.MOST
    assert batches.MOST <= 16 * 1024 * 1024


LINKS: dict[str, Callable[[int], str]] = {
    "unclosed string": lambda n: '<https://a/?p=2>; rel="' + '\\"' * n,
    "parameters": lambda n: "<https://a/?p=2>" + "; a=b" * n,
    "spaces": lambda n: "<https://a/?p=2>" + " " * n + ";",
    "commas": lambda n: "<https://a/?p=2>" + ", " * n + "x",
    "links": lambda n: "<https://a/?p=2>; rel=prev, " * n,
    "unclosed target": lambda n: "<" + "a" * n,
}


@pytest.mark.parametrize("shape", LINKS)
def test_a_link_header_takes_steps_as_it_is_long(shape: str) -> None:
    page, request = pages.Paging(style="link"), FrozenRequest("GET", "/a", {}, b"")

    def cost(n: int) -> int:
        answer = response.Document(200, {"link": LINKS[shape](n)}, [])
        return steps(lambda: page.following(answer, [], request, ["https://a"]))

    assert not grows_with_the_square(cost, 200)


WORDS: dict[str, Callable[[str], Any]] = {
    "a key": keys.parse_key,
    "a suspicious key": suspicious.kind,
    "a pointer": json_pointer.parse,
    "a cursor": lambda text: pages.with_parameter("/a?b=1&" + text, "after", text),
}
LETTERS = ("a", '"', "\\", ",", ";", "~", "/", "&", "=", "1", "+1 ", "a@", "a.", "-", "%41", "é")


@pytest.mark.parametrize("letters", LETTERS)
@pytest.mark.parametrize("word", WORDS)
def test_a_word_takes_steps_as_it_is_long(word: str, letters: str) -> None:
    assert not grows_with_the_square(lambda n: steps(lambda: WORDS[word](letters * n)), 200)


def test_a_way_to_count_steps_tells_the_square() -> None:
    def square(n: int) -> int:
        return steps(lambda: [None for a in range(n) if [b for b in range(n) for _ in (1,)]])

    def line(n: int) -> int:
        return steps(lambda: [str(a) for a in range(n) if len(str(a)) < n])

    def loops(n: int) -> None:
        for _ in range(n):
            for _ in range(n):
                pass

    assert grows_with_the_square(lambda n: steps(lambda: loops(n)), 40)
    assert not grows_with_the_square(line, 400)
    assert square(10) > 0


PARSES = {
    "outbox/values/canonical.py": "a client's body",
    "outbox/database/jsonb.py": "what the database holds",
    "outbox/providers/response.py": "a provider's answer, an event",
    "outbox/providers/batches.py": "a batch",
    "outbox/accept/prepare.py": "params that were read and written just before",
    "outbox/worker/rendering.py": "params that were accepted, in the thread that renders them",
    "outbox/worker/local_turn.py": "params that were accepted, in the thread of their step",
    "outbox/accept/accept.py": "what the database gives back",
    "outbox/domain/fingerprints.py": "how a stored fingerprint was composed, from the configuration of then",
    "outbox/providers/request_parts.py": "the body of our own frozen request",
    "outbox/providers/key_locations.py": "the body of our own frozen request",
    "outbox/domain/redaction.py": "the beginning of a provider's answer, cut before",
    "outbox/domain/sending.py": "what a function of the operator's said",
    "outbox/observe/metric_files.py": "what processes of this group wrote",
    "outbox/api/intents.py": "an answer that was stored here, and was bounded then",
    "reconciler/ledger/compare.py": "what was made storable before",
    "cli": "words of the person at the terminal",
    "testing": "test code",
}


def test_every_place_that_parses_json_is_in_the_table() -> None:
    parsing = r"\bjson\.(loads?|JSONDecoder)\("
    for shown, _ in texts("outbox", "reconciler", "sweeper", "cli", "testing", "idem", holding=parsing):
        assert shown in PARSES or shown.partition("/")[0] in PARSES, shown
