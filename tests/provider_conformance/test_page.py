"""docs/adopt/provider-conformance.md: its test runs as it stands, and finds a contract that promises too much."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from idem.testing.bank import Bank, BankAccount, BankSettings
from idem.testing.providers import Fault, ProviderConformance, World

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adopt" / "provider-conformance.md").read_text()
EXAMPLE = (ROOT / "examples" / "idem.toml").read_text()


def run(place: Path, contract: str, *options: str, **account: Any) -> str:
    """The page's test under pytest, in a folder of its own; what it printed."""
    (place / "test_contract.py").write_text(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0])
    (place / "idem.toml").write_text(contract)
    settings = BankSettings(durable=False, require_auth=True, accounts=(BankAccount(**account),))
    with Bank(settings).in_thread() as bank:
        env = {**os.environ, "SANDBOX": bank.url, "BANK_TOKEN": "main-token"}
        command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", *options, "test_contract.py"]
        return subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=170).stdout


@pytest.mark.process
def test_the_page_passes_and_says_what_it_did_not_check(tmp_path: Path) -> None:
    told = run(tmp_path, EXAMPLE)
    passed, skipped = re.search(r"= (\d+) passed, (\d+) skipped in", told).groups()  # type: ignore[union-attr]
    assert int(passed) > 45 and int(skipped) > 10, told
    for why in ('World.next has no "500_cached"', "webhook is not set", "cancel_by_key is not set"):
        assert why in told


def test_a_contract_that_promises_too_much_is_told_which_setting(tmp_path: Path) -> None:
    told = run(tmp_path, EXAMPLE, "-k", "second_send", replay="none")
    assert re.search(r"Broken: key\.replay: it is \"stored\", but a second send had another effect", told), told


@pytest.mark.quick
def test_the_page_has_every_member_fault_and_rule() -> None:
    members = {name for name in vars(World) if not name.startswith("_")}
    said = set(re.findall(r"`(\w+)(?:\(\w*\))?`", PAGE))
    assert members - {"settle_late"} <= said
    assert set(Fault) <= said


def test_without_a_world_the_suite_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from idem.testing.providers import ProviderConformance\n\n\nclass TestIt(ProviderConformance):\n    pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-x", "test_it.py"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100).stdout
    assert "give your subclass of ProviderConformance a fixture `world`" in told


WITHOUT_HYPOTHESIS = """
import sys
sys.modules["hypothesis"] = None
import idem.testing.providers
from idem.testing.providers import answers
seen = []
answers.for_each(seen.append, (b'{"id": 1}',))
fixed = len(list(answers.table()))
assert len(seen) == fixed + len(answers.STATUSES) and fixed > 300
"""


def test_the_suite_needs_no_hypothesis() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_HYPOTHESIS], check=True, timeout=100)


def test_every_test_of_the_suite_says_its_rule() -> None:
    rules = [getattr(ProviderConformance, name) for name in dir(ProviderConformance) if name.startswith("test_")]
    assert rules and all(rule.__doc__ for rule in rules)
