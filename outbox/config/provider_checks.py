"""What is wrong with the table of one provider: its accounts, its look-ups, and how its answers are read."""

import re
from typing import Final

from idem.outbox.config.call_settings import CallSettings
from idem.outbox.config.findings import Findings
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.config.source import SettingPath
from idem.outbox.providers import outcome_rules
from idem.outbox.providers.outcome_rules import Says
from idem.outbox.values import json_pointer


def check_accounts(findings: Findings, name: str, settings: ProviderSettings) -> None:
    """Accounts that are missing, travel in the open, or set a header twice."""
    loc = ("providers", name, "accounts")
    if not settings.accounts:
        findings.error(loc, "there is no account", f"Write [providers.{name}.accounts.main] with an origin")
    for account, each in settings.accounts.items():
        if each.is_open:
            findings.warn(
                (*loc, account, "origin"),
                "requests and credentials travel unencrypted",
                "Use https, except on the machine itself",
            )
        for header in sorted({header for header in each.sets if each.sets.count(header) > 1}):
            findings.error((*loc, account, "headers"), f"{header} is said twice", "Keep one of them")
        key = settings.key
        if key.carrier == "header" and key.name and key.name.lower() in each.sets:
            findings.error(
                (*loc, account, "headers"), f"{key.name} carries the provider key", "Leave it out: idem sets it"
            )
        if each.signature is not None and each.signature.unsigned:
            findings.warn(
                (*loc, account, "signature", "over"),
                f"the signature leaves out {' and '.join(each.signature.unsigned)}: it fits other requests too",
                "Sign what the provider's documentation says; most want path and body",
            )


def check_tag(findings: Findings, name: str, settings: ProviderSettings) -> None:
    """A deployment tag whose place another word of ours has."""
    tag, key = settings.deployment_tag, settings.key
    for place in () if tag is None or key.carrier != "body" else (tag.at, tag.key_at):
        if place is not None and place[0] == key.name:
            findings.error(
                ("providers", name, "deployment_tag"),
                f"the provider key is carried at {json_pointer.render(place)} (key.name)",
                "Give the tag a place of its own, e.g. /metadata/idem_deployment",
            )


def check_headers(findings: Findings, loc: SettingPath, call: CallSettings, provider: ProviderSettings) -> None:
    """A header of a call that its account or idem itself sets too: no call could be made."""
    accounts = provider.accounts.items()
    used = [each for account, each in accounts if call.account in (None, account)]
    key = provider.key
    for header in call.headers:
        if key.carrier == "header" and key.name and header.lower() == key.name.lower():
            findings.error((*loc, "headers", header), "it carries the provider key", "Leave it out: idem sets it")
        if any(header.lower() in account.sets for account in used):
            findings.error(
                (*loc, "headers", header),
                f"the account at provider {call.provider} sets it",
                "Keep one of them",
            )


SEGMENT: Final = re.compile(r"\{idem\.segment\.([0-9]+)\}")


def check_segments(findings: Findings, loc: SettingPath, call: CallSettings, provider: ProviderSettings) -> None:
    """Look-ups for parts of a path that the call's path does not have: none could ever be made."""
    lookup = provider.lookup
    ways = [(f"by_{way.by}", way.path) for way in lookup.ways() if way.by != "id"]
    ways += [] if lookup.by_events is None else [("by_events", lookup.by_events.path)]
    parts = {number for number, part in enumerate(call.path.partition("?")[0].split("/")) if part}
    lacking = {by: [n for n in SEGMENT.findall(str(path)) if int(n) not in parts] for by, path in ways}
    if lacking and all(lacking.values()):
        by, numbers = next(iter(lacking.items()))
        findings.warn(
            (*loc, "path"),
            f"provider {call.provider} is never asked about these calls: lookup.{by} wants "
            f"{{idem.segment.{numbers[0]}}}, and this path has no such part",
            "Write another look-up, or give the provider of this operation a table of its own",
        )


def check_asking(findings: Findings, name: str, settings: ProviderSettings) -> None:
    """Events that speak of objects beside the one that was made, and lists in which nothing tells ours."""
    loc, events = ("providers", name), settings.lookup.by_events
    if events is not None and not events.types:
        findings.warn(
            (*loc, "lookup", "by_events", "types"),
            "one call makes events of other objects too (its charge, a balance), which would be taken for copies of "
            "the object that it made",
            'Name the types that speak of that object, as types = ["payment.*"]',
        )
    if settings.list is None:
        return
    if settings.deployment_tag is None and not settings.dedicated_account:
        findings.warn(
            (*loc, "list"),
            "an object in this list does not say which program made it. `idem reconcile` counts an object without an "
            "intent as made by another program, even if this installation made it",
            f"If no other program uses these accounts, write dedicated_account = true under [providers.{name}]; "
            f"otherwise write [providers.{name}.deployment_tag]",
        )
    if settings.list.reference is None and settings.object.reference is None:
        findings.error(
            (*loc, "list", "reference"),
            "nothing says where the provider's reference is, and no object could be matched",
            'As in object = {reference = "/id"}, or list.reference',
        )


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
        findings.warn(
            (*loc, "answers_carry"),
            f"many gateways set {settings.answers_carry} themselves, and their own answers would count as the "
            "provider's",
            "Name a header that the provider alone sets, or make sure that nothing between here and there sets this "
            "one",
        )
    if not settings.errors.shape:
        findings.warn(
            (*loc, "errors", "shape"),
            "nothing tells the provider's own errors from a proxy's, so every unlisted 4xx is taken for a mistake in "
            "the configuration and waits",
            'Name a member that all its errors have, as shape = "/error/code"',
        )
    for way in settings.lookup.ways():
        if way.by != "id" and way.match is None:
            findings.warn(
                (*loc, "lookup", f"by_{way.by}", "match"),
                "nothing in the answer must prove whose the object is: a provider that ignores the query would settle "
                "this call with another one's object",
                'Name the member that holds our key, as match = "/reference"',
            )
    for index, rule in enumerate(settings.outcome):
        if rule.says is Says.AMBIGUOUS_CACHED and not (rule.when or rule.headers or settings.errors.shape):
            findings.warn(
                (*loc, "outcome", index),
                "nothing tells the provider's failure from a proxy's, which is stored nowhere: this rule never holds",
                "Demand a header or a member of the body, or say errors.shape",
            )
        if rule.says in (Says.NOT_EXECUTED_REQUEST, Says.NOT_EXECUTED_CONFIG, Says.NOT_EXECUTED_THROTTLED):
            doubtful = sorted(outcome_rules.statuses(rule.status) & UNSAFE_TO_EXCUSE) if rule.status is not None else []
            if doubtful and not rule.when:
                findings.warn(
                    (*loc, "outcome", index, "status"),
                    f"a {doubtful[0]} may come from a proxy after the provider has acted, and this rule would have "
                    "the call sent again",
                    "Demand something of the body with `when`",
                )
