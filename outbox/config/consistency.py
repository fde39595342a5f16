"""What only several settings together show: contracts that cannot settle, operations that nothing serves."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from idem.outbox.config.call_settings import CallSettings
from idem.outbox.config.findings import Findings
from idem.outbox.config.flow_settings import FlowSettings
from idem.outbox.config.operation_settings import OperationTable
from idem.outbox.config.place_checks import check_params, check_places, check_pointers, check_steps
from idem.outbox.config.provider_checks import (
    check_accounts,
    check_asking,
    check_headers,
    check_reading,
    check_segments,
    check_tag,
)
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.config.settings import InstallationSettings
from idem.outbox.config.source import SettingPath
from idem.outbox.domain.completion import completes_when
from idem.outbox.domain.contract import LOCAL, Contract
from idem.outbox.providers import contract_checks
from idem.outbox.providers.outcome_rules import Says
from idem.outbox.providers.template import KEY
from idem.outbox.values.durations import text
from idem.outbox.values.suggestions import nearest


def check_provider(
    findings: Findings, name: str, settings: ProviderSettings, installation: InstallationSettings
) -> None:
    """The contract's own checks, and what its accounts, look-ups and rules lack."""
    if name == LOCAL:
        findings.error(("providers", name), "this name means operations that call no provider", "Use another name")
    contract, worker = settings.contract(name), installation.worker
    found = contract_checks.check(
        contract,
        lease=worker.lease,
        margin=worker.margin,
        said_unsettleable="on_unsettleable" in settings.model_fields_set,
        rules=bool(settings.says() & {Says.FINAL, Says.ANSWER, Says.PENDING}),
        events=contract.events_settle,
        today=datetime.now(UTC).date(),
        believed=installation.doctor.verified,
    )
    for finding in found:
        findings.add(finding.level, ("providers", name, *finding.where.split(".")), finding.what, finding.do)
    if contract.pause_allowance == 0:
        findings.warn(
            ("providers", name, "pause_allowance"),
            "a process that was frozen between its last check and its first byte may still send after its call was "
            "proven not executed",
            "Allow for the longest pause of a machine or a process; the default is 15m",
        )
    needed = 2 * contract.deadline + worker.margin
    if needed >= installation.reconciler.lease and contract.deadline + worker.margin < worker.lease:
        findings.warn(
            ("providers", name, "deadline"),
            f"a replay and a look-up may take {text(needed)} together, longer than reconciler.lease",
            "Make reconciler.lease longer",
        )
    if settings.kind == "send":
        # The rest is about HTTP.
        return
    check_accounts(findings, name, settings)
    check_tag(findings, name, settings)
    check_asking(findings, name, settings)
    check_reading(findings, name, settings)


def check_operation(
    findings: Findings,
    name: str,
    settings: OperationTable,
    providers: Mapping[str, ProviderSettings],
    written: Any,
) -> tuple[str, ...] | None:
    """The accounts that its calls use, in their order; None: not every one is known. `written` are the providers of the
    file, the broken ones too."""
    loc = ("operations", name)
    check_params(findings, loc, settings.params)
    check_pointers(findings, loc, settings)
    if isinstance(settings, FlowSettings):
        check_steps(findings, loc, settings, providers)
    interim = None if settings.answer.interim is None or _is_told(settings, providers) else (*loc, "answer", "interim")
    accounts = []
    for at, call in settings.calls:
        check_places(findings, (*loc, *at), call, settings.params)
        accounts.append(check_call(findings, (*loc, *at), call, providers, written, interim=interim))
        interim = None
    known = tuple(account for account in accounts if account is not None)
    return known if len(known) == len(accounts) else None


def check_call(
    findings: Findings,
    loc: SettingPath,
    call: CallSettings,
    providers: Mapping[str, ProviderSettings],
    written: Any,
    *,
    interim: SettingPath | None = None,
) -> str | None:
    """The account that a call uses. `loc`: where it stands; `interim`: where the operation's interim answer stands, if
    none of its calls tells it."""
    provider = providers.get(call.provider)
    if provider is None:
        if call.provider not in written:
            findings.error(
                (*loc, "provider"),
                f"there is no provider {call.provider!r}",
                nearest(call.provider, list(written)),
            )
        return None
    _check_key_use(findings, loc, call, provider)
    _check_completion(findings, loc, call, provider, interim)
    check_headers(findings, loc, call, provider)
    check_segments(findings, loc, call, provider)
    if call.account is not None:
        if call.account not in provider.accounts:
            findings.error(
                (*loc, "account"),
                f"provider {call.provider} has no account {call.account!r}",
                nearest(call.account, list(provider.accounts)),
            )
        return call.account
    if len(provider.accounts) > 1:
        findings.error(
            (*loc, "account"),
            f"provider {call.provider} has several accounts",
            f"Name one of {', '.join(sorted(provider.accounts))}",
        )
    return next(iter(provider.accounts), None)


def _check_key_use(findings: Findings, loc: SettingPath, call: CallSettings, provider: ProviderSettings) -> None:
    tagged = provider.deployment_tag is not None and provider.deployment_tag.key_at is not None
    uses_key = tagged or any(hole.path == KEY for _, hole in call.holes())
    lookup, carried = provider.lookup, provider.key.carrier != "none"
    by = "by_reference" if lookup.by_reference is not None else "by_key" if lookup.by_key and not carried else None
    if by is not None and not uses_key:
        findings.error(
            (*loc, "body"),
            f"provider {call.provider} is asked {by.replace('_', ' ')}, but the request does not carry the key: "
            "every look-up would find nothing, and the call would be made again",
            'Put the key where the look-up finds it, as reference = "{idem.key}"',
        )


OPEN: Final = frozenset({Says.ANSWER, Says.PENDING})


def _is_told(settings: OperationTable, providers: Mapping[str, ProviderSettings]) -> bool:
    """Whether a client may get the interim answer of an operation."""
    known = [(call, providers[call.provider]) for _, call in settings.calls if call.provider in providers]
    return any(
        provider.says() & OPEN and completes_when(call.completes_when, provider.contract(call.provider)) == "final"
        for call, provider in known
    )


def _check_completion(
    findings: Findings, loc: SettingPath, call: CallSettings, provider: ProviderSettings, interim: SettingPath | None
) -> None:
    opens = provider.says() & OPEN
    contract = provider.contract(call.provider)
    if not opens:
        if call.completes_when == "exists" or interim is not None:
            findings.warn(
                (*loc, "completes_when") if call.completes_when == "exists" else interim or loc,
                f"no rule of provider {call.provider} says answer or pending, so nothing of it is ever open: each "
                "answer is an end, and this changes nothing",
                'Leave it out, or add the rule that is missing, as says = "pending"',
            )
        return
    words = " or ".join(sorted(opens))
    if completes_when(call.completes_when, contract) == "exists":
        if interim is not None:
            findings.warn(
                interim,
                "it is never told: the key is complete as soon as the provider has the object, and its client gets "
                "answer.succeeded",
                'Put what the client needs next into answer.succeeded, or say completes_when = "final"',
            )
        if provider.webhook is None:
            findings.warn(
                (*loc, "completes_when"),
                f"the key is complete when the provider says {words}, and nobody asks after that; what becomes of "
                f"the object would come as an event (a later_fact), but provider {call.provider} has no webhook",
                'Set up its webhook, or say completes_when = "final", so that the end is awaited',
            )
        return
    asked = contract.lookup.possible or contract.lookup.by_id or contract.key.replay == "current"
    if not asked and provider.webhook is None:
        findings.warn(
            (*loc, "completes_when"),
            f"what the provider calls {words} waits for its end, and nothing can tell that: no look-up, no webhook, "
            "and a replay that gives the first answer again at most",
            "Write lookup.by_id, or set up its webhook",
        )


def check_together(
    findings: Findings,
    settings: InstallationSettings,
    providers: Mapping[str, ProviderSettings],
    operations: Mapping[str, OperationTable],
    written: Any,
) -> None:
    """What installation, providers and operations contradict each other in.

    `written` are the operations of the file, the broken ones too.
    """
    # With mistakes in the file the application is not loaded, and its operations are not known.
    if not written and not (settings.app and findings.errors):
        findings.warn(("operations",), "there is no operation", "Write one, or define it in Python")
    for name, operation in operations.items():
        for provider in dict.fromkeys(call.provider for _, call in operation.calls if call.provider in providers):
            check_memory(findings, ("operations", name), operation, providers[provider].contract(provider), settings)
        reach = operation.give_up_after if operation.start_within is None else operation.start_within
        if reach > operation.key_ttl and any(call.provider in providers for _, call in operation.calls):
            findings.warn(
                ("operations", name, "key_ttl"),
                f"a call may begin for {text(reach)}, longer than its key is kept at rest",
                "Make key_ttl at least as long",
            )


def check_memory(
    findings: Findings,
    loc: SettingPath,
    operation: OperationTable,
    contract: Contract,
    installation: InstallationSettings,
) -> None:
    """A provider that remembers a key for longer than idem does."""
    remembered = operation.key_ttl + installation.sweeper.tombstone_ttl
    memory = max(contract.key.retention, contract.retention_max or 0.0)
    if contract.key.carrier != "none" and remembered < memory:
        # Afterwards the same request is new here, under the same derived provider key: the provider would answer
        # with what it did the first time (hazard 59).
        findings.error(
            (*loc, "key_ttl"),
            f"key and tombstone live for {text(remembered)}, less than the provider's memory of {text(memory)}",
            "Make key_ttl or sweeper.tombstone_ttl longer",
        )
