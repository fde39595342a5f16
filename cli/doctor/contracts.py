"""The configuration: mistakes, missing secrets, contracts that cannot settle, and facts that are out of date."""

from __future__ import annotations

from datetime import UTC, date, datetime

from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import CheckResult, error, ok, warning
from idem.outbox.config import Configuration
from idem.outbox.config.doctor_settings import DoctorSettings
from idem.outbox.domain.contract import Contract
from idem.outbox.providers.contract_checks import Finding
from idem.outbox.values.durations import text


def configuration(mistakes: list[Finding]) -> list[CheckResult]:
    """The findings of `idem config check`, including missing secrets."""
    findings = [
        CheckResult(
            "configuration",
            each.level,
            f"{each.where}{'' if each.line is None else f' (line {each.line})'}: {each.what}",
            each.do,
        )
        for each in mistakes
        # The age of the facts is a check below, against doctor.verified.
        if each.level == "error" or not each.where.endswith(".verified")
    ]
    return findings or [ok("configuration", "idem.toml and the environment are in order; no secret is missing")]


async def contracts(examination: Examination) -> list[CheckResult]:
    """Check what each contract can settle without an operator, and when its facts were last verified."""
    found = examination.configuration
    assert found is not None
    findings = [
        finding
        for name, provider in found.providers.items()
        for finding in about(name, provider.contract, examination.limits, today=datetime.now(UTC).date())
    ]
    return findings or [ok("contracts", f"{_count(found)} can settle, and their facts are verified")]


def _count(found: Configuration) -> str:
    return "every contract" if len(found.providers) != 1 else f"the contract of {next(iter(found.providers))}"


def about(name: str, contract: Contract, limits: DoctorSettings, *, today: date) -> list[CheckResult]:
    """The warnings about one contract."""
    findings = []
    settles = contract.replays or contract.lookup.possible or contract.events or contract.cancel
    if not settles and contract.on_unsettleable == "operator":
        findings.append(
            warning(
                "contracts",
                f"provider {name}: after a timeout idem cannot find out what happened, so each timeout becomes a dead "
                "letter",
                f"If the provider has a key, a look-up or webhooks, write it under [providers.{name}]; if not, an "
                "operator must decide each case",
            )
        )
    verify = f'Check the documentation again, then write providers.{name}.verified = "{today.isoformat()}"'
    if contract.verified is None:
        findings.append(
            warning(
                "contracts",
                f"provider {name}: the configuration does not say when its facts were last verified",
                verify,
            )
        )
        return findings
    try:
        checked = date.fromisoformat(contract.verified)
    except ValueError:
        return [
            *findings,
            error("contracts", f"provider {name}: verified is not a date: {contract.verified!r}", verify),
        ]
    days = (today - checked).days
    if days * 86400 > limits.verified:
        findings.append(
            warning(
                "contracts",
                f"provider {name}: its facts were last verified {days} days ago, more than {text(limits.verified)}",
                verify,
            )
        )
    return findings
