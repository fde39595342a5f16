"""docs/adopt/stripe.md, "Try it locally": its commands are run as they stand, and a payment goes through the bank."""

import json
import re
import shlex
import subprocess
import uuid
from pathlib import Path

import httpx
from examples.town import IDEM, Town, listens
from fix_webhooks import free_port
from tutorial.page import FENCE, missing

PAGE = Path(__file__).parents[2] / "docs" / "adopt" / "stripe.md"
FILES = ("idem.toml",)
EVENTS = False


def test_stripe_can_be_tried_on_this_machine(town: Town) -> None:
    bank = str(free_port())
    page = PAGE.read_text().partition("## Try it locally")[2].partition("\n## ")[0].replace("8433", bank)
    town.environment |= {"STRIPE_SECRET_KEY": "sk_test_1", "IDEM_ENVIRONMENT": "test"}
    said = ""
    for language, text in FENCE.findall(page):
        first, _, rest = text.partition("\n")
        if language == "toml":
            assert first == "# idem.toml"
            (town.folder / "idem.toml").write_text(rest)
        elif first == "# beside it":
            process = town.start(*IDEM, *shlex.split(rest)[1:])
            town.wait(lambda: listens(int(bank)), process=process)
        elif language == "text":
            assert missing(text, said) is None, said
        else:
            said = subprocess.run(
                shlex.split(text), cwd=town.folder, timeout=60, capture_output=True, check=True, text=True
            ).stdout
    token = json.loads(town.run(*IDEM, "token", "create", "t", "--label", "page", "--json"))["token"]
    town.serve(*IDEM, "api", "run", "--port", str(town.port))
    for kind in ("worker", "sweeper", "reconciler"):
        town.start(*IDEM, kind, "run")
    told = httpx.post(
        f"{town.address}/v1/intents/payments.create",
        json={"amount": 700, "card": "pm_card_visa"},
        headers={"Authorization": f"Bearer {token}", "Idempotency-Key": str(uuid.uuid4())},
        timeout=60,
    )
    assert told.status_code == 202, told.text
    town.until("SELECT state = 'completed' FROM idem.intents")
    stats = httpx.get(f"http://127.0.0.1:{bank}/_bank/stats").json()
    assert (stats["effects"], stats["faults"]) == (1, {"act_then_drop": 1}), stats


def test_every_account_takes_a_script(town: Town) -> None:
    """The stage door is the bank's own, whatever API its accounts have (and its examples are in its help)."""
    examples = re.findall(r"--account (\S+:\S+)", town.run(*IDEM, "bank", "run", "--help"))
    assert examples
    for account in (*examples, "shop:sk_test_1"):
        port = free_port()
        process = town.start(*IDEM, "bank", "run", "--port", str(port), "--account", account)
        town.wait(lambda at=port: listens(at), process=process)  # type: ignore[misc]
        told = httpx.post(f"http://127.0.0.1:{port}/_bank/script", json={"faults": ["act_then_drop"]})
        assert (told.status_code, told.json()["added"]) == (201, 1), (account, told.text)
