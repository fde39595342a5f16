"""One town for each module: a database, a bank, the example's own processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.town import Town
from fix_sql import query
from fix_webhooks import free_port
from schema.databases import new_database

from idem.testing.bank import Bank, BankAccount, BankSettings
from idem.testing.databases import HERE


@pytest.fixture(scope="module")
def town(request: Any, server: str, template: str, tmp_path_factory: Any) -> Iterator[Town]:
    """The module says what it lays there: `FILES`; and, where it is no usual one, the `ACCOUNT` at the bank."""
    folder: Path = tmp_path_factory.mktemp("example")
    port = free_port()
    kind = getattr(request.module, "ACCOUNT", {})
    hooks = f"http://127.0.0.1:{port}/webhooks/bank" if request.module.EVENTS else None
    account = BankAccount(webhook_url=hooks, **kind)
    settings = BankSettings(log=folder / "bank.jsonl", durable=False, require_auth=True, accounts=(account,))
    with new_database(server, template=template) as url, Bank(settings).in_thread() as bank:
        query(url, HERE)
        town = Town(folder, url, bank, account.webhook_secret, port)
        town.lay(*request.module.FILES)
        try:
            yield town
        finally:
            town.stop()
