"""docs/adopt/providers.md: its blocks are one idem.toml, and its table says what the contracts say."""

import base64
import re
from pathlib import Path

from example_providers.fix_examples import EXAMPLES

from idem.outbox.config import explain, load
from idem.outbox.domain.provider import Provider

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adopt" / "providers.md").read_text()
ENV = {
    "ACME_KEY": "acme-key",
    "MAIL_KEY": "mail-key",
    "ACME_WEBHOOK_SECRET": "whsec_" + base64.b64encode(b"a" * 32).decode(),
}
TABLES = {
    "Adyen": "adyen",
    "PayPal, orders": "paypal_orders",
    "PayPal, refunds": "paypal_payments",
    "Square, payments": "square",
    "Square, refunds": "square_refunds",
    "Checkout.com": "checkout",
    "GoCardless": "gocardless",
}
TIMES = {"24 h": 86400, "7 days": 7 * 86400, "6 h": 21600, "45 days": 45 * 86400, "30 days": 30 * 86400}


def test_its_blocks_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "idem.toml"
    path.write_text("\n".join(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)))
    # The date grows old, and nobody asks about a mail.
    assert [str(each) for each in explain(path, ENV) if not each.where.endswith(".verified")] == []
    found = load(path, ENV)
    assert found.providers["acme"].contract.replays and found.providers["acme"].contract.events_settle
    assert found.providers["mail"].contract.on_unsettleable == "assume_done"


def test_its_links_lead_somewhere() -> None:
    linked = set(re.findall(r"\]\(([^)#]+)\)", PAGE))
    assert {path.name for path in EXAMPLES.glob("*.toml")} <= {Path(each).name for each in linked}
    # The page on the conformance suite is written beside this one.
    missing = {each for each in linked if not (ROOT / "docs" / "adopt" / each).resolve().exists()}
    assert missing <= {"provider-conformance.md"}


def test_its_table_says_what_the_contracts_say(providers: dict[str, Provider]) -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| ")]
    table = {row[0]: row[1:] for row in rows if len(row) == 6}
    assert set(TABLES) | {"Stripe", "provider", "---"} == set(table)
    for name, provider in TABLES.items():
        contract = providers[provider].contract
        carrier, _, kept, settles, _ = table[name]
        assert carrier == contract.key.carrier
        assert TIMES.get(kept, 0) == contract.key.retention
        assert settles.startswith("replay") is contract.replays
        assert ("webhook" in settles) is contract.events_settle
        assert ("cancel by key" in settles) is (contract.cancel is not None)
