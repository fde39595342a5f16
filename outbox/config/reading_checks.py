"""How far a contract can tell what the provider says from what something in between says."""

from __future__ import annotations

from typing import Final

from idem.outbox.config.findings import Findings
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.providers import outcome_rules
from idem.outbox.providers.outcome_rules import Says

UNSAFE_TO_EXCUSE: Final = frozenset({408, 409, 423, 424, 429, *range(500, 600)})
"""Statuses that also come from what stands between us and the provider, after the request went on."""

OF_EVERY_SERVER: Final = frozenset(
    {
        "age", "alt-svc", "cache-control", "connection", "content-encoding", "content-language", "content-length",
        "content-security-policy", "content-type", "date", "etag", "expires", "keep-alive", "last-modified", "location",
        "pragma", "referrer-policy", "retry-after", "server", "set-cookie", "strict-transport-security",
        "transfer-encoding", "vary", "via", "www-authenticate", "x-content-type-options", "x-frame-options",
        "x-powered-by",
    }
)  # fmt: skip
"""Headers that say nothing about who answers."""

OF_GATEWAYS: Final = frozenset(
    {"x-request-id", "x-correlation-id", "x-trace-id", "x-amzn-requestid", "x-amzn-trace-id", "cf-ray", "x-cache",
     "x-envoy-upstream-service-time", "x-kong-request-id"}
)  # fmt: skip
"""Headers that proxies, ingresses and content delivery networks add, or make anew, also on answers of their own."""


def check_reading(findings: Findings, name: str, settings: ProviderSettings) -> None:
    """What tells the provider's own answers from others, and what the rules conclude without it."""
    loc = ("providers", name)
    carried = (settings.answers_carry or "").lower()
    if carried in OF_EVERY_SERVER:
        findings.error(
            (*loc, "answers_carry"),
            f"any HTTP server sends the header {settings.answers_carry}, a proxy too: it does not tell the "
            "provider's own answers from others",
            "Name a header that the provider alone sets on every answer, e.g. Request-Id at Stripe, or leave it out",
        )
    elif carried in OF_GATEWAYS:
        findings.add(
            "warning",
            (*loc, "answers_carry"),
            f"many gateways set {settings.answers_carry} themselves, and their own answers would count as the "
            "provider's",
            "Name a header that the provider alone sets, or make sure that nothing between here and there sets this "
            "one",
        )
    if not settings.errors.shape:
        findings.add(
            "warning",
            (*loc, "errors", "shape"),
            "nothing tells the provider's own errors from a proxy's, so every unlisted 4xx is taken for a mistake in "
            "the configuration and waits",
            'Name a member that all its errors have, as shape = "/error/code"',
        )
    for look in settings.lookup.ways():
        if look.by != "id" and look.match is None:
            findings.add(
                "warning",
                (*loc, "lookup", f"by_{look.by}", "match"),
                "nothing in the answer must prove whose the object is: a provider that ignores the query would settle "
                "this call with another one's object",
                'Name the member that holds our key, as match = "/reference"',
            )
    for index, rule in enumerate(settings.outcome):
        if rule.says is Says.AMBIGUOUS_CACHED and not (rule.when or rule.headers or settings.errors.shape):
            findings.add(
                "warning",
                (*loc, "outcome", index),
                "nothing tells the provider's failure from a proxy's, which is stored nowhere: this rule never holds",
                "Demand a header or a member of the body, or say errors.shape",
            )
        if rule.says in (Says.NOT_EXECUTED_REQUEST, Says.NOT_EXECUTED_CONFIG, Says.NOT_EXECUTED_THROTTLED):
            doubtful = sorted(outcome_rules.statuses(rule.status) & UNSAFE_TO_EXCUSE) if rule.status is not None else []
            if doubtful and not rule.when:
                findings.add(
                    "warning",
                    (*loc, "outcome", index, "status"),
                    f"a {doubtful[0]} may come from a proxy after the provider has acted, and this rule would have "
                    "the call sent again",
                    "Demand something of the body with `when`",
                )
