"""What the look-ups and lists of a provider contradict in the rest of its contract."""

from __future__ import annotations

import re
from typing import Final

from idem.outbox.config.findings import Findings
from idem.outbox.config.operation_settings import OperationSettings
from idem.outbox.config.provider_settings import ProviderSettings

SEGMENT: Final = re.compile(r"\{idem\.segment\.([0-9]+)\}")


def check_segments(findings: Findings, name: str, operation: OperationSettings, provider: ProviderSettings) -> None:
    """Look-ups for parts of a path that the operation's path does not have: none could ever be made."""
    lookup = provider.lookup
    ways = [(f"by_{look.by}", look.path) for look in lookup.ways() if look.by != "id"]
    ways += [] if lookup.by_events is None else [("by_events", lookup.by_events.path)]
    parts = {number for number, part in enumerate(operation.path.partition("?")[0].split("/")) if part}
    lacking = {by: [n for n in SEGMENT.findall(str(path)) if int(n) not in parts] for by, path in ways}
    if lacking and all(lacking.values()):
        by, numbers = next(iter(lacking.items()))
        findings.add(
            "warning",
            ("operations", name, "path"),
            f"provider {operation.provider} is never asked about these calls: lookup.{by} wants "
            f"{{idem.segment.{numbers[0]}}}, and this path has no such part",
            "Write another look-up, or give the provider of this operation a table of its own",
        )


def check_asking(findings: Findings, name: str, settings: ProviderSettings) -> None:
    """Events that speak of objects beside the one that was made, and lists in which nothing tells ours."""
    loc, events = ("providers", name), settings.lookup.by_events
    if events is not None and not events.types:
        findings.add(
            "warning",
            (*loc, "lookup", "by_events", "types"),
            "one call makes events of other objects too (its charge, a balance), which would be taken for copies of "
            "the object that it made",
            'Name the types that speak of that object, as types = ["payment.*"]',
        )
    if settings.list is None:
        return
    if settings.deployment_tag is None and not settings.dedicated_account:
        findings.add(
            "warning",
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
