"""Checks of a contract at start-up: whether what is unknown can be settled, and in the order that it says."""

from collections.abc import Iterator

from idem.outbox.domain.contract import Contract
from idem.outbox.providers.findings import Finding, error, warning
from idem.outbox.values.durations import text


def about_settling(contract: Contract, said: bool, events: bool) -> Iterator[Finding]:
    """Every finding. `said`: `on_unsettleable` was written down; `events`: webhooks can settle."""
    yield from _settling(contract, said, events)
    yield from _events(contract, events)
    yield from _order(contract)


def _events(contract: Contract, events: bool) -> Iterator[Finding]:
    alone = events and not (contract.replays or contract.lookup.possible or contract.cancel)
    if alone and contract.schedule and contract.schedule[-1] <= contract.event_rule.redelivery:
        yield error(
            "schedule",
            f"events alone can settle, and one may come again for {text(contract.event_rule.redelivery)}, but whoever "
            f"waits for it gives up after {text(contract.schedule[-1])}",
            "Add a later time, or say webhook.redelivery if it is shorter",
        )
    if contract.event_rule.redelivery < 0:
        yield error("webhook.redelivery", "it is negative", "Give a duration such as 3d")


def _settling(contract: Contract, said: bool, events: bool) -> Iterator[Finding]:
    can_settle = contract.replays or contract.lookup.possible or events or contract.cancel is not None
    if not can_settle and not said:
        yield error(
            "on_unsettleable",
            "after a timeout nothing can tell what happened: no replay under the key, no look-up, no events",
            'Say that a person decides then, as on_unsettleable = "operator"',
        )
    if contract.on_unsettleable != "operator" and contract.value_at_risk != "none":
        yield error(
            "on_unsettleable",
            f"{contract.on_unsettleable!r} is a standing order to decide without proof, and value is at risk",
            'Use "operator"; only where a wrong decision costs nothing (a mail, a text message) say value_at_risk = '
            '"none"',
        )
    if contract.late_effects and not (contract.replays or events or contract.cancel or contract.lookup.by_events):
        yield warning(
            "late_effects",
            "after a 5xx the effect may still come, so that an absence never settles, and there is nothing else that "
            "could: each such call ends with a person",
            "Set up its webhook, if it has one",
        )
    if contract.cancel is not None and events and not (contract.lookup.possible or contract.lookup.by_id):
        yield error(
            "cancel_by_key",
            "an event that comes while a cancel is under way is believed only when its object is fetched, and there "
            "is no look-up: such a call could not be settled by anybody",
            "Write lookup.by_id, or leave out the webhook or the cancel",
        )
    if contract.lookup.agree < 1:
        yield error("lookup.agree", "at least one look must say so", "Use 2 or more")
    if contract.lookup.horizon < 0:
        yield error("lookup.horizon", "it is negative", "Give 0s if a look-up sees every write at once")


def _order(contract: Contract) -> Iterator[Finding]:
    missing = {
        "replay": (contract.replays, f"key.replay is {contract.key.replay!r} or its window is too short: a second send "
                   "could be a second effect"),
        "lookup": (contract.lookup.possible or contract.lookup.by_id, "there is no look-up"),
        "cancel_by_key": (contract.cancel is not None, "there is no [cancel_by_key]"),
    }  # fmt: skip
    for strategy in dict.fromkeys(contract.strategies):
        possible, why = missing[strategy]
        if not possible:
            yield error("settle", f"{strategy!r} cannot settle: {why}", "Leave it out, or write down what is missing")
    if len(set(contract.strategies)) < len(contract.strategies):
        yield error("settle", "it names a way twice", "Name each once, best first")
