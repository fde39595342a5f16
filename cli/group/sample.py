"""What `idem up` starts without an idem.toml: a fake bank, and one operation that pays through it."""

import secrets
import socket
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from idem.cli.base.bank_contract import BANK, PARAMS
from idem.cli.group.up_note import write_private
from idem.outbox.values.errors import ConfigError
from idem.testing.bank import BankAccount, BankSettings, SettingsError

OPERATION = "payments.create"
HOST = "127.0.0.1"

TOML = """\
# Written once by `idem up`. You may change it; idem reads it at the next start.
# The provider is a fake bank that fails on request. Its times are short, so that a crash is settled while you watch.
environment = "development"

[worker]
lease = "15s"
margin = "2s"

[reconciler]
lease = "20s"

[providers.bank]
verified = "{today}"
connect_timeout = "2s"
deadline = "5s"
flight_limit = "15s"
pause_allowance = "15s"
schedule = ["1s", "5s", "15s", "30s", "1m", "10m", "1h"]
throttles_before_execution = true
on_unsettleable = "operator"
dedicated_account = true                 # only this installation pays at this bank

[providers.bank.key]
carrier = "header"
name = "Idempotency-Key"
replay = "stored"
retention = "24h"

[providers.bank.lookup]
horizon = "5s"
agree = 2
by_key = {{ path = "/payments?key={{idem.key}}", object = "/data/0", match = "/idempotency_key", empty = "/data" }}
by_id = {{ path = "/payments/{{idem.reference}}" }}

# For `idem reconcile --since 24h`, which compares the bank's own list with the ledger.
[providers.bank.list]
path = "/payments?limit=50&since={{idem.since}}&until={{idem.until}}"
items = "/data"
key = "/idempotency_key"
created = "/created"
page = {{ style = "after_id", parameter = "after", more = "/has_more" }}

{bank}
[providers.bank.accounts.main]
origin = "{origin}"
authorization = {{ file = "bank.token", prefix = "Bearer " }}

[operations."{operation}"]
provider = "bank"
path = "/payments"
# `faults` is for experiments: with ["act_then_drop"] the bank pays and closes the connection without an answer.
body = {{ amount = "{{amount}}", currency = "eur", order = "{{order}}", bank_fault = "{{faults?}}" }}
label = "{{order}}"
answer.succeeded = {{ status = 201, body = {{ payment = "{{idem.reference}}", status = "{{idem.status}}" }} }}

{params}"""


@dataclass(frozen=True, slots=True)
class Sample:
    """The files of a sample: the configuration and the settings of its bank. `new`: they were just written."""

    config: Path
    bank: Path
    new: bool


def sample(home: Path) -> Sample:
    """The sample in this folder; writes missing files and never changes existing ones.

    Raises ConfigError if half of it is missing, or if the bank's port is in use.
    """
    config, bank, token = home / "idem.toml", home / "bank.json", home / "bank.token"
    if config.exists():
        if not (bank.exists() and token.exists()):
            raise ConfigError(f"{home}: idem.toml exists, but bank.json or bank.token is missing. Remove idem.toml")
        _check_port(bank)
        return Sample(config, bank, new=False)
    # The origin is part of every payment, so this port is kept.
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    word = secrets.token_urlsafe(16)
    log = (home / "bank.jsonl").absolute()
    settings = BankSettings(port=port, log=log, require_auth=True, accounts=(BankAccount("main", word),))
    write_private(token, word)
    write_private(bank, settings.to_json())
    params = PARAMS.format(operation=OPERATION, least=", minimum = 1")
    parts = {"operation": OPERATION, "today": date.today(), "bank": BANK.format(name="bank"), "params": params}
    write_private(config, TOML.format(origin=f"http://{HOST}:{port}", **parts))
    return Sample(config, bank, new=True)


def _check_port(bank: Path) -> None:
    try:
        port = BankSettings.from_json(bank.read_bytes()).port
    except SettingsError as error:
        raise ConfigError(f"{bank}: {error}") from None
    try:
        socket.create_server((HOST, port)).close()
    except OSError as error:
        raise ConfigError(
            f"the bank of this folder cannot listen on port {port}: {error.strerror}. Stop the program that uses it, "
            f"or change the port in {bank} and in the idem.toml beside it"
        ) from None
