"""GET /v1/intents by reference, label and time: of the caller's tenant alone."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from fix_api import Client
from fix_spine import Spine

from idem.outbox.api import tenant_search


async def labelled(spine: Spine) -> None:
    await spine.forced("UPDATE idem.intents SET label = 'order 1', provider_reference = 'pay_1'")


async def ids(api: Client, **query: Any) -> list[str]:
    response = await api.http.get("/v1/intents", params=query)
    assert response.status_code == 200, response.text
    return [each["id"] for each in response.json()["intents"]]


async def test_a_tenant_finds_its_own_and_nobody_elses(api: Client, spine: Spine) -> None:
    first = str(api.intent(await api.ask(key="a")))
    second = str(api.intent(await api.ask(key="b")))
    spine.accept("c", tenant="somebody-else")
    await labelled(spine)
    now = datetime.now(UTC)
    both = [second, first]
    assert await ids(api, reference="pay_1") == both
    assert await ids(api, label="order 1") == both
    keys = await spine.all("SELECT intent_id, tenant_id, provider_key FROM idem.outbox")
    for row in keys:
        here = [str(row["intent_id"])] if row["tenant_id"] == "t" else []
        assert await ids(api, provider_key=str(row["provider_key"])) == here
        assert await ids(api, provider_key=str(row["provider_key"]), reference="pay_1", label="order 1") == here
        assert await ids(api, provider_key=str(row["provider_key"]), reference="pay_2") == []
    assert await ids(api, since=(now - timedelta(minutes=5)).isoformat()) == both
    assert await ids(api, reference="pay_1", label="order 1", state="in_progress", operation="pay.keyed") == both
    assert await ids(api, reference="pay_1", before=second) == [first]
    assert await ids(api, reference="pay_1", limit=1) == [second]
    assert await ids(api, since="0001-01-01T00:00:00Z", until="9999-12-31T23:59:59Z") == both
    for nothing in (
        {"reference": "pay_2"}, {"label": "order"}, {"reference": "pay_1", "label": "order 2"},
        {"until": (now - timedelta(days=1)).isoformat()}, {"since": (now + timedelta(days=1)).isoformat()},
        {"reference": "pay_1", "state": "completed"},
    ):  # fmt: skip
        assert await ids(api, **nothing) == [], nothing


@pytest.mark.parametrize(
    "query", [{"label": "order 1"}, {"reference": "pay_1"}, {"label": "order 1", "reference": "pay_1"}]
)
@pytest.mark.parametrize("scanned", [2, 3, 7])
async def test_each_intent_is_on_a_page(api: Client, spine: Spine, monkeypatch: Any, query: Any, scanned: int) -> None:
    monkeypatch.setattr(tenant_search, "SCANNED", scanned)
    asked = [str(api.intent(await api.ask(key=f"k{number}"))) for number in range(7)]
    await labelled(spine)
    await spine.forced("UPDATE idem.intents SET state = 'unknown' WHERE id = ANY (%(i)s)", i=[asked[0], asked[4]])
    for state, wanted in ((None, asked[::-1]), ("unknown", [asked[4], asked[0]]), ("completed", [])):
        more: dict[str, Any] = {"limit": 2, **query} | ({} if state is None else {"state": state})
        found: list[str] = []
        for _ in range(20):
            page = (await api.http.get("/v1/intents", params=more)).json()
            found += [each["id"] for each in page["intents"]]
            if page["next"] is None:
                break
            more["before"] = page["next"]
        assert (found, page["next"]) == (wanted, None), state


async def test_a_time_is_that_of_the_id_and_no_two_spans_share_an_intent(api: Client) -> None:
    made = [str(api.intent(await api.ask(key=f"k{number}"))) for number in range(4)]
    middle = datetime.fromtimestamp((UUID(made[2]).int >> 80) / 1000, UTC).isoformat()
    for more in ({}, {"state": "in_progress"}, {"operation": "pay.keyed"}):
        later, earlier = await ids(api, since=middle, **more), await ids(api, until=middle, **more)
        assert made[2] in later
        assert earlier + later == [*earlier, *later] and sorted(earlier + later) == sorted(made)


@pytest.mark.parametrize(
    "query",
    [{"since": "yesterday"}, {"since": "2026-01-01T00:00:00"}, {"label": ""}, {"label": "x" * 2000},
     {"reference": "a\0"}, {"provider_key": "pay_1"}, {"until": "9999-12-31T23:59:59-14:00"},
     {"key": "a", "operation": "pay.keyed", "label": "x"}],
)  # fmt: skip
async def test_what_cannot_be_searched_for_is_a_400(api: Client, query: dict[str, str]) -> None:
    response = await api.http.get("/v1/intents", params=query)
    assert (response.status_code, response.json()["code"]) == (400, "query_invalid")
