"""One town for each module: a database, a bank, the example's own processes."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from examples.town import Town
from fix_database import on
from fix_sql import query
from fix_webhooks import free_port

from idem.testing.bank import Bank, BankAccount, BankSettings
from idem.testing.databases import HERE


@pytest.fixture(scope="module")
def town(request: Any, server: str, template: str, tmp_path_factory: Any) -> Iterator[Town]:
    """The module says what it lays there: `FILES`."""
    folder: Path = tmp_path_factory.mktemp("example")
    name = f"idem_example_{os.getpid()}_{request.module.__name__.rpartition('.')[2].lower()}"
    port = free_port()
    account = BankAccount(webhook_url=f"http://127.0.0.1:{port}/webhooks/bank" if request.module.EVENTS else None)
    settings = BankSettings(log=folder / "bank.jsonl", durable=False, require_auth=True, accounts=(account,))
    with psycopg.connect(server, autocommit=True) as admin, Bank(settings).in_thread() as bank:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            query(on(server, name), HERE)
            town = Town(folder, on(server, name), bank, account.webhook_secret, port)
            town.lay(*request.module.FILES)
            try:
                yield town
            finally:
                town.stop()
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
