"""Providers that idem.toml would make, for the tests of look-ups, lists and cancels."""

from __future__ import annotations

import tomllib
from typing import Any

from idem.outbox.config.provider_building import build_http
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.providers.http import HttpProvider

STRIPE = """
key = { carrier = "header", name = "Idempotency-Key", replay = "stored", retention = "24h" }
encoding = "form"
headers = { Stripe-Version = "2026-10-01" }
errors = { shape = "/error/type", code = "/error/code", message = "/error/message" }
deployment_tag = { at = "/metadata/idem_deployment", key_at = "/metadata/idem_key" }
accounts.main = { origin = "ORIGIN" }

[object]
reference = "/id"
status = "/status"

[object.statuses]
final = ["succeeded"]
answer = ["requires_action"]
pending = ["processing"]
refused = ["canceled"]

[lookup]
horizon = "1m"

[lookup.by_id.path]
pi_ = "/v1/payment_intents/{idem.reference}"
pi_old_ = "/v0/{idem.reference}"
re_ = "/r/{idem.reference}"

[lookup.by_events]
path = "/v1/events?limit=100&created%5Bgte%5D={idem.sent_at}"
items = "/data"
match = ["/request/idempotency_key", "/data/object/metadata/idem_key"]
object = "/data/object"
types = { "/v1/payment_intents" = ["payment_intent.*"], "/v1/refunds" = ["refund.created", "refund.updated"] }
created = "/created"
kept = "30d"
page = { style = "after_id", parameter = "starting_after", more = "/has_more" }

[list]
path = "/v1/payment_intents?limit=100&created%5Bgte%5D={idem.since}&created%5Blt%5D={idem.until}"
items = "/data"
created = "/created"
page = { style = "after_id", parameter = "starting_after", more = "/has_more" }
"""

SQUARE = """
key = { carrier = "body", name = "idempotency_key", replay = "current", retention = "24h" }
errors = { shape = "/errors/0/code" }
settle = ["lookup", "cancel_by_key"]
late_effects = true
dedicated_account = true
accounts.main = { origin = "ORIGIN" }

[object]
reference = "/id"
status = "/status"

[object.statuses]
final = ["COMPLETED"]
answer = ["APPROVED"]
pending = ["PENDING"]
refused = ["CANCELED", "FAILED"]

[lookup.by_key]
path = "/v2/payments?begin_time={idem.sent_at_iso}&sort_order=ASC"
object = "/payments/0"
match = "/reference_id"
page = { style = "cursor", parameter = "cursor", next = "/cursor" }

[cancel_by_key]
path = "/v2/payments/cancel"
body = { idempotency_key = "{idem.key}" }
object = "/payment"
"""


def provider(text: str, origin: str = "https://api.example", **changes: Any) -> HttpProvider:
    """The provider of a table; `changes` replace its members."""
    written = tomllib.loads(text.replace("ORIGIN", origin)) | changes
    return build_http(ProviderSettings.model_validate(written), "psp", {}, environment="test")
