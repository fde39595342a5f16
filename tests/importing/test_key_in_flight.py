"""A call in flight is asked about under the key that it was sent under, never under one that idem derived."""

from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fix_desk import Desk
from fix_spine import BY_ID, KEYED
from importing.lines import in_flight, taken

from idem.decisions import Replay
from idem.outbox.domain.contract import KeyRule, LookupRule

BY_KEY = 'by_key = { path = "/payments?key={idem.key}", object = "/data/0", match = "/key", empty = "/data" }'
BY_REFERENCE = BY_KEY.replace("by_key", "by_reference")
REPLAY = ('replay = "stored", retention = "24h"', 'replay = "none"')
"""What `fix_desk` says of the key, and what a provider without replays says."""


def configured(configuration: Path, *changes: tuple[str, str]) -> None:
    text = configuration.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    pause = 'pause_allowance = "2m"'
    configuration.write_text(text.replace(pause, f'{pause}\non_unsettleable="operator"'))


@pytest.mark.parametrize(
    "changes",
    [
        (),
        (REPLAY, ("by_id =", f"{BY_KEY}, by_id =")),
        (
            REPLAY,
            ("by_id =", f"{BY_REFERENCE}, by_id ="),
            ('currency = "eur"', 'currency = "eur", reference = "{idem.key}"'),
        ),
    ],
    ids=["replay", "by_key", "by_reference"],
)
async def test_a_reference_alone_is_refused_for_a_key(
    desk: Desk, configuration: Path, tmp_path: Path, changes: tuple[tuple[str, str], ...]
) -> None:
    configured(configuration, *changes)
    done = await taken(desk, tmp_path, in_flight(provider_key=None, reference="pay_1"))
    assert done.code == 1 and "line 1: provider_key: say under which key it was sent. Provider keyed" in done.err, done
    assert await desk.spine.all("SELECT FROM idem.intents") == []


async def test_a_reference_alone_is_enough_for_look_ups_by_id(desk: Desk, configuration: Path, tmp_path: Path) -> None:
    spine = desk.spine
    configured(configuration, REPLAY)
    async with httpx.AsyncClient(base_url=spine.bank.url, verify=False) as client:
        headers = {"authorization": "Bearer keyed-token", "idempotency-key": "order-17"}
        made = await client.post("/payments", json={"amount": 100, "currency": "eur"}, headers=headers)
    done = await taken(desk, tmp_path, in_flight(provider_key=None, reference=made.json()["id"]))
    assert done.code == 0, done
    key = KeyRule("header", "idempotency-key", "none")
    contract = replace(KEYED, key=key, lookup=LookupRule(by_id=True, horizon=10, agree=2), on_unsettleable="operator")
    changed = replace(spine.catalogue.providers["keyed"], contract=contract, lookups=(BY_ID,))  # type: ignore[type-var]
    spine.catalogue = replace(spine.catalogue, providers={**spine.catalogue.providers, "keyed": changed})
    for _ in range(3):
        await spine.reconcile(after=300, hasten=True)
    assert isinstance(spine.accept(), Replay)
    assert await spine.works() == 1
