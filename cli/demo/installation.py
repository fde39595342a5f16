"""The files of a demo: idem.toml with the scaled contracts, and the settings of the bank."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path

from idem.cli.base.bank_contract import BANK, PARAMS
from idem.cli.demo.constants import Constants
from idem.cli.demo.scenario import KEYED, KEYLESS, operation
from idem.testing.bank import BankAccount, BankSettings, SecondRequest

ENVIRONMENT = "demo"
APPLICATION = "idem.cli.demo.shop:idem"
TOKENS: Mapping[str, str] = {"DEMO_BANK_TOKEN": "demo-bank-token", "DEMO_OLDBANK_TOKEN": "demo-oldbank-token"}
"""The credentials of the two accounts, by environment variable; valid only at the demo's own bank."""

LOOKUP_FAULTS = 0.1
"""The share of look-ups that fail: a failed look-up must prove nothing."""

TOML = """\
# Written by `idem demo`: contracts close to production's, with every time multiplied by {factor:g}.
environment = "{environment}"
{app}
[worker]
slots = 16
lease = {worker_lease:g}
margin = {worker_margin:g}
poll = 0.5

[sweeper]
interval = 0.5

[reconciler]
interval = 0.25
lease = {reconciler_lease:g}
slot_share = 0.5

{providers}
"""

PROVIDER = """\
[providers.{name}]
verified = "{today}"
connect_timeout = {connect_timeout:g}
deadline = {deadline:g}
flight_limit = {flight_limit:g}
pause_allowance = {pause_allowance:g}
schedule = {schedule}
pending_schedule = {pending_schedule}
pending_limit = {pending_limit:g}
throttles_before_execution = true
on_unsettleable = "operator"

[providers.{name}.key]
{key}

[providers.{name}.lookup]
horizon = {horizon:g}
agree = 2
{lookup}
by_id = {{ path = "/payments/{{idem.reference}}" }}

{bank}
[providers.{name}.accounts.main]
origin = "{origin}"
authorization = {{ env = "{token}", prefix = "Bearer " }}

[operations."{operation}"]
provider = "{name}"
path = "/payments"
body = {{ amount = "{{amount}}", currency = "eur", order = "{{order}}", {reference}bank_fault = "{{faults?}}" }}
label = "{{order}}"
give_up_after = {give_up_after:g}

{params}"""

TAG = """\
[providers.{name}.deployment_tag]
at = "/deployment"
key_at = "/reference"

"""
"""Writes the provider key into each body: a request that Python makes does not know it."""
REFERENCE = 'reference = "{idem.key}", '
KEY = 'carrier = "header"\nname = "Idempotency-Key"\nreplay = "stored"\nretention = {retention:g}'
LOOKUP = '{{ path = "/payments?{by}={{idem.key}}", object = "/data/0", match = "{match}", empty = "/data" }}'


def idem_toml(times: Constants, origin: str, *, with_flows: bool) -> str:
    """The installation's settings: two providers at one bank, with an operation each; flows are defined in the
    application."""
    knows = KEY.format(retention=times["retention"])
    keyed = "by_key = " + LOOKUP.format(by="key", match="/idempotency_key")
    keyless = "by_reference = " + LOOKUP.format(by="reference", match="/reference")
    tagged = ("", TAG.format(name=KEYLESS)) if with_flows else (REFERENCE, "")
    providers = (
        _provider(KEYED, times, origin, "DEMO_BANK_TOKEN", knows, keyed, "", ""),
        _provider(KEYLESS, times, origin, "DEMO_OLDBANK_TOKEN", 'carrier = "none"', keyless, *tagged),
    )
    return TOML.format(
        factor=times.factor,
        environment=ENVIRONMENT,
        app=f'app = "{APPLICATION}"\n' if with_flows else "",
        worker_lease=times["worker.lease"],
        worker_margin=times["worker.margin"],
        reconciler_lease=times["reconciler.lease"],
        providers="\n".join(providers),
    )


def _provider(
    name: str, times: Constants, origin: str, token: str, key: str, lookup: str, reference: str, tag: str
) -> str:
    plain = ("connect_timeout", "deadline", "flight_limit", "pause_allowance", "pending_limit", "horizon")
    return PROVIDER.format(
        today=date.today(),
        name=name,
        operation=operation(name),
        origin=origin,
        token=token,
        bank=tag + BANK.format(name=name),
        params=PARAMS.format(operation=operation(name), least=""),
        key=key,
        lookup=lookup,
        reference=reference,
        schedule=[round(step, 4) for step in times.schedule],
        pending_schedule=[round(step, 4) for step in times.pending_schedule],
        give_up_after=times["give_up_after"],
        **{setting: times[setting] for setting in plain},
    )


def bank_settings(times: Constants, log: Path, seed: int) -> BankSettings:
    """The bank's settings: payments name their own faults; faults of look-ups are random."""
    return BankSettings(
        log=log,
        durable=False,
        require_auth=True,
        seed=seed,
        lookup_fault_rate=LOOKUP_FAULTS,
        pending_seconds=times["bank.pending"],
        stall_seconds=times["bank.late_effect"],
        latency=times["bank.latency"],
        accounts=(
            BankAccount(KEYED, TOKENS["DEMO_BANK_TOKEN"], SecondRequest.STORED, retention=times["retention"]),
            BankAccount(KEYLESS, TOKENS["DEMO_OLDBANK_TOKEN"], SecondRequest.NONE, lookup_lag=times["bank.lookup_lag"]),
        ),
    )
