"""The files of examples/providers are right as they stand, and every fact in them has a source."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from example_providers.fix_examples import ENV, EXAMPLES, NAMES, lay

from idem.outbox.config import Configuration, explain
from idem.outbox.domain.provider import Provider

SOURCES = (
    "official page",
    "official SDK",
    "official OpenAPI file",
    "official forum",
    "not re-checked",
    "a third party",
)


def test_there_is_one_for_each() -> None:
    # stripe.toml names the built-in kind, and has tests of its own.
    assert {path.stem for path in EXAMPLES.glob("*.toml")} - {"stripe"} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_has_no_mistakes(name: str, tmp_path: Path) -> None:
    # The dates of an example grow old.
    assert [str(each) for each in explain(lay(name, tmp_path), ENV) if not each.where.endswith(".verified")] == []


@pytest.mark.quick
@pytest.mark.process
@pytest.mark.parametrize("name", NAMES)
def test_config_check_takes_it(name: str, tmp_path: Path) -> None:
    lay(name, tmp_path)
    command = [sys.executable, "-c", "from idem.cli.entry import main; main()", "config", "check", "--json"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **ENV}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"] is True


@pytest.mark.parametrize("name", NAMES)
def test_facts_have_their_source(name: str) -> None:
    text = (EXAMPLES / f"{name}.toml").read_text()
    assert "2026-11-27" in text.partition("environment")[0]
    assert sum(text.count(source) for source in SOURCES) >= 6
    tables = re.findall(r"^\[providers\.(\w+)\]$", text, re.MULTILINE)
    assert tables and text.count('verified = "2026-11-27"') == len(tables)


def test_what_settles(providers: dict[str, Provider]) -> None:
    """The first question of a contract, in one table."""
    found = {}
    for name, provider in providers.items():
        contract = provider.contract
        ways = [("replay", contract.replays), ("reference", contract.lookup.by_reference)]
        ways += [
            ("cancel", contract.cancel is not None),
            ("webhook", contract.events_settle),
            ("id", contract.lookup.by_id),
        ]
        found[name] = [way for way, there in ways if there]
    assert found == {
        "adyen": ["replay", "webhook"],
        "adyen_refunds": ["replay", "webhook"],
        "checkout": ["reference", "webhook", "id"],
        "checkout_refunds": ["reference", "webhook"],
        "gocardless": ["replay", "reference", "webhook", "id"],
        "paypal_orders": ["replay", "id"],
        "paypal_payments": ["replay", "id"],
        "square": ["reference", "cancel", "webhook", "id"],
        "square_refunds": ["reference", "webhook", "id"],
    }


def test_windows(examples: dict[str, Configuration], providers: dict[str, Provider]) -> None:
    hour, day, margin = 3600.0, 86400.0, 120.0 + 900.0
    windows = {name: provider.contract.replay_window for name, provider in providers.items()}
    assert {name: window for name, window in windows.items() if providers[name].contract.replays} == {
        "adyen": 7 * day - margin,
        "adyen_refunds": 7 * day - margin,
        "gocardless": 30 * day - margin,
        "paypal_orders": 6 * hour - margin,
        "paypal_payments": 45 * day - margin,
    }
    # Where only the replay tells, its last look must come before the window closes.
    for name in ("adyen", "adyen_refunds", "paypal_orders", "paypal_payments"):
        assert providers[name].contract.schedule[-1] < windows[name]
