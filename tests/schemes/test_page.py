"""docs/adopt/webhooks.md: each block is taken as it stands, and does what the page says."""

import re
from pathlib import Path

import pytest
from fix_schemes import ADYEN, PLAIN, STANDARD, STRIPE

from idem.outbox.config import explain, load

PAGE = Path(__file__).parents[2] / "docs" / "adopt" / "webhooks.md"
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
SECRETS = {"bank": STANDARD, "stripe": STRIPE, "adyen": ADYEN}
PROVIDER = """
environment = "test"
[providers.NAME]
key = { carrier = "header", name = "idempotency-key", replay = "stored", retention = "24h" }
errors = { shape = "/error/code" }
object = { status = "/status" }
outcome = [{ says = "final", when = { "/status" = "succeeded" } }]
lookup = { horizon = "1m", by_id = { path = "/payments/{idem.reference}" } }
accounts.main = { origin = "https://bank.example" }
"""
OPERATION = '[operations.pay]\nprovider = "NAME"\npath = "/payments"\nparams = { type = "object" }\n'


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split(".")[1])
def test_a_block_is_taken_as_it_stands(block: str, tmp_path: Path) -> None:
    name = block.split(".")[1]
    file = tmp_path / "idem.toml"
    file.write_text((PROVIDER + block + OPERATION).replace("NAME", name))
    variable = re.findall(r'env = "([A-Z_]+)"', block)
    env = dict.fromkeys(variable, SECRETS.get(name, PLAIN))
    said = [each for each in explain(file, env) if ".webhook" in each.where]
    assert said == []
    webhook = load(file, env).providers[name].webhook
    assert webhook is not None and webhook.secrets["main"]


def test_every_scheme_is_on_the_page() -> None:
    schemes = {found for block in BLOCKS for found in re.findall(r'scheme = "(.*?)"', block)}
    assert schemes == {"stripe", "hmac-sha256", "square", "adyen", "gocardless"}
    assert len(BLOCKS) == 10
