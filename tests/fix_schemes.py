"""Deliveries in the form of each provider: signed by its own library if that can sign, else by the published rule."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from Adyen.util import generate_notification_sig
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from stripe import WebhookSignature

from idem.outbox.domain.webhook import Scheme, Signed, Unverified, verify
from idem.outbox.providers.schemes.adyen import AdyenSignatures
from idem.outbox.providers.schemes.gocardless import GoCardlessSignatures
from idem.outbox.providers.schemes.hmac_sha256 import HmacSha256, parse_template
from idem.outbox.providers.schemes.square import SquareSignatures
from idem.outbox.providers.schemes.standard import StandardWebhooks
from idem.outbox.providers.schemes.stripe import StripeSignatures

OPERATION = """
[operations.pay]
provider = "bank"
path = "/payments"
params = { type = "object" }
"""
NOW = float(int(time.time()))
URL = "https://hooks.shop.example/webhooks/keyed"

STANDARD, OTHER_STANDARD = ("whsec_" + base64.b64encode(c * 32).decode() for c in (b"a", b"b"))
STRIPE, OTHER_STRIPE = "whsec_" + "s" * 32, "whsec_" + "o" * 32
ADYEN, OTHER_ADYEN = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056", "ab" * 32
PLAIN, OTHER_PLAIN = "a secret of the provider", "another secret"

PRIVATE = Ed25519PrivateKey.from_private_bytes(b"p" * 32)
PUBLIC = "whpk_" + base64.b64encode(PRIVATE.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()

GITHUB = HmacSha256(header=b"x-hub-signature-256", prefix=b"sha256=", id_header=b"x-github-delivery")
CHECKOUT = HmacSha256(header=b"cko-signature")
SHOPIFY = HmacSha256(header=b"x-shopify-hmac-sha256", encoding="base64", id_header=b"x-shopify-event-id")
TREASURY = HmacSha256(header=b"x-signature")
TIMED = HmacSha256(
    header=b"x-sig",
    prefix=b"v0=",
    signed=parse_template("v0:{timestamp}:{id}:{body}"),
    timestamp_header=b"x-time",
    id_header=b"x-id",
)

Headers = dict[str, str]


def mac(key: str | bytes, content: bytes) -> bytes:
    """HMAC-SHA256."""
    return hmac.new(key.encode() if isinstance(key, str) else key, content, hashlib.sha256).digest()


def in_hex(key: str, content: bytes) -> str:
    return mac(key, content).hex()


def in_base64(key: str | bytes, content: bytes) -> str:
    return base64.b64encode(mac(key, content)).decode()


def by_standard(body: bytes, key: str = STANDARD, at: float = NOW, id: str = "evt_1") -> Headers:
    signed = f"{id}.{int(at)}.".encode() + body
    key_bytes = base64.b64decode(key.removeprefix("whsec_"))
    return standard_headers(f"v1,{in_base64(key_bytes, signed)}", at, id)


def by_key(body: bytes, key: Ed25519PrivateKey = PRIVATE, at: float = NOW, id: str = "evt_1") -> Headers:
    signed = f"{id}.{int(at)}.".encode() + body
    return standard_headers(f"v1a,{base64.b64encode(key.sign(signed)).decode()}", at, id)


def standard_headers(signature: str, at: float = NOW, id: str = "evt_1") -> Headers:
    return {"webhook-id": id, "webhook-timestamp": str(int(at)), "webhook-signature": signature}


def by_stripe(body: bytes, key: str = STRIPE, at: float = NOW) -> Headers:
    """A signature by Stripe's own library."""
    made = WebhookSignature.generate_signature_header(body.decode("utf-8"), key, int(at))
    return {"stripe-signature": str(made)}


def by_adyen(item: dict[str, Any], key: str = ADYEN) -> dict[str, Any]:
    """An item with the signature that Adyen's own library makes."""
    signature = generate_notification_sig(item, key).decode()
    return {**item, "additionalData": {**item.get("additionalData", {}), "hmacSignature": signature}}


def batch(*items: dict[str, Any]) -> bytes:
    """The body of Adyen's deliveries."""
    return json.dumps({"live": "false", "notificationItems": [{"NotificationRequestItem": i} for i in items]}).encode()


def notification(**more: Any) -> dict[str, Any]:
    """An unsigned item like in Adyen's documentation."""
    return {
        "amount": {"currency": "EUR", "value": 1130},
        "eventCode": "AUTHORISATION",
        "eventDate": "2026-11-28T10:00:00+01:00",
        "merchantAccountCode": "TestMerchant",
        "merchantReference": "TestPayment-1407325143704",
        "pspReference": "7914073381342284",
        "success": "true",
        **more,
    }


def raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in headers.items()]


def check(
    scheme: Scheme,
    body: bytes,
    headers: Mapping[str, str] | Sequence[tuple[bytes, bytes]],
    *secrets: str,
    now: float = NOW,
    url: str | None = None,
) -> str | None:
    """The result of the scheme: an id, None, or `! reason` if it refuses the delivery."""
    keys = [scheme.parse_secret(each) for each in secrets]
    given = raw(headers) if isinstance(headers, Mapping) else headers
    try:
        return verify(scheme, Signed(given, body, url), keys, now)
    except Unverified as error:
        return f"! {error.reason}"


@dataclass(frozen=True)
class Kind:
    """One scheme, the secrets of two accounts, and a genuine delivery."""

    name: str
    scheme: Scheme
    secret: str
    other: str
    body: bytes
    sign: Callable[[bytes, str], Headers]
    url: str | None = None

    @property
    def headers(self) -> Headers:
        return self.sign(self.body, self.secret)

    def says(self, body: bytes, headers: Mapping[str, str], *secrets: str, now: float = NOW) -> str | None:
        return check(self.scheme, body, headers, *(secrets or (self.secret,)), now=now, url=self.url)


BODY = b'{"id":"evt_1","type":"payment.succeeded","data":{"id":"pay_1","status":"succeeded"}}'


def _signed_in(name: str, prefix: str = "", into: Callable[[str, bytes], str] = in_hex) -> Callable[..., Headers]:
    return lambda body, key: {name: prefix + into(key, body)}


def _timed(body: bytes, key: str) -> Headers:
    signed = f"v0:{int(NOW)}:evt_1:".encode() + body
    return {"x-sig": "v0=" + in_hex(key, signed), "x-time": str(int(NOW)), "x-id": "evt_1"}


KINDS = [
    Kind("standard", StandardWebhooks(), STANDARD, OTHER_STANDARD, BODY, by_standard),
    Kind("ed25519", StandardWebhooks(), PUBLIC, STANDARD, BODY, lambda body, key: by_key(body)),
    Kind("stripe", StripeSignatures(), STRIPE, OTHER_STRIPE, BODY, by_stripe),
    Kind("github", replace(GITHUB, id_header=None), PLAIN, OTHER_PLAIN, BODY,
         _signed_in("x-hub-signature-256", "sha256=")),
    Kind("checkout", CHECKOUT, PLAIN, OTHER_PLAIN, BODY, _signed_in("cko-signature")),
    Kind("shopify", replace(SHOPIFY, id_header=None), PLAIN, OTHER_PLAIN, BODY,
         _signed_in("x-shopify-hmac-sha256", into=in_base64)),
    Kind("modern treasury", TREASURY, PLAIN, OTHER_PLAIN, BODY, _signed_in("x-signature")),
    Kind("timed", TIMED, PLAIN, OTHER_PLAIN, BODY, _timed),
    Kind("square", SquareSignatures(), PLAIN, OTHER_PLAIN, BODY,
         lambda body, key: {"x-square-hmacsha256-signature": in_base64(key, URL.encode() + body)}, URL),
    Kind("gocardless", GoCardlessSignatures(), PLAIN, OTHER_PLAIN, BODY, _signed_in("webhook-signature")),
    Kind("adyen", AdyenSignatures(), ADYEN, OTHER_ADYEN, batch(by_adyen(notification())), lambda body, key: {}),
]  # fmt: skip
"""Every scheme. Adyen's signature is in the body, so its headers are empty."""
