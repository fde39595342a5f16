"""The configuration: mistakes, missing secrets, contracts that cannot settle, and facts that are out of date."""

from collections.abc import Iterator
from datetime import UTC, date, datetime

from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import CheckResult, Findings, error, ok, warning
from idem.outbox.config.doctor_settings import DoctorSettings
from idem.outbox.domain.contract import LOCAL, Contract
from idem.outbox.providers.contract_checks import Finding
from idem.outbox.values.durations import text
from idem.outbox.values.plural import several


def configuration(mistakes: list[Finding]) -> Iterator[CheckResult]:
    """The findings of `idem config check`, including missing secrets."""
    in_order = True
    for each in mistakes:
        # The age of the facts is a check below, against doctor.verified.
        if each.level == "error" or not each.where.endswith(".verified"):
            in_order = False
            line = "" if each.line is None else f" (line {each.line})"
            yield CheckResult("configuration", each.level, f"{each.where}{line}: {each.what}", each.do)
    if in_order:
        yield ok("idem.toml and the environment are in order; no secret is missing", "configuration")


async def contracts(examination: Examination) -> Findings:
    """Check what each contract can settle without an operator, and when its facts were last verified."""
    found = examination.configuration
    assert found is not None
    # A local operation calls no provider, so nothing of it becomes unknown.
    providers = {name: each for name, each in found.providers.items() if name != LOCAL}
    for name, provider in providers.items():
        for finding in about(name, provider.contract, examination.limits, today=datetime.now(UTC).date()):
            yield finding
    count = f"the contract of {next(iter(providers))}" if len(providers) == 1 else "every contract"
    yield ok(f"{count} can settle, and their facts are verified")


def about(name: str, contract: Contract, limits: DoctorSettings, *, today: date) -> Iterator[CheckResult]:
    """The warnings about one contract."""
    settles = contract.replays or contract.lookup.possible or contract.events_settle or contract.cancel
    if not settles and contract.on_unsettleable == "operator":
        yield warning(
            f"provider {name}: after a timeout idem cannot find out what happened, so each timeout becomes a dead "
            "letter",
            f"If the provider has a key, a look-up or webhooks, write it under [providers.{name}]; if not, an "
            "operator must decide each case",
        )
    verify = f'Check the documentation again, then write providers.{name}.verified = "{today.isoformat()}"'
    if contract.verified is None:
        yield warning(f"provider {name}: the configuration does not say when its facts were last verified", verify)
        return
    try:
        checked = date.fromisoformat(contract.verified)
    except ValueError:
        yield error(f"provider {name}: verified is not a date: {contract.verified!r}", verify)
        return
    days = (today - checked).days
    if days * 86400 > limits.verified:
        ago = several(days, "day")
        what = f"provider {name}: its facts were last verified {ago} ago, more than {text(limits.verified)}"
        yield warning(what, verify)
