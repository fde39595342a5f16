"""Over HTTP: 202 while a person decides, the label of the token as the one who asked, and the description."""

import json

from approval.waiting import BIG, OWN, Waiting
from fix_api import client
from fix_spine import Spine

from idem.outbox.api import openapi
from idem.outbox.config.http_settings import ApiSettings

BODY = {"amount": BIG}


async def test_a_client_hears_202_until_a_person_has_decided(waiting: Waiting) -> None:
    spine = waiting.spine
    async with client(spine) as api:
        answers = [await api.ask(amount=BIG) for _ in range(3)]
        assert {each.status_code for each in answers} == {202}, "a retry repeats nothing that runs"
        assert {each.json()["status"] for each in answers} == {"waiting_for_approval"}
        assert {each.headers["Retry-After"] for each in answers} == {"60"}
        intent = api.intent(answers[0])
        shown = await api.http.get(f"/v1/intents/{intent}")
        assert shown.json()["status"] == "waiting_for_approval"
        assert [each["status"] for each in shown.json()["timeline"]] == ["waiting_for_approval"]
        assert "asked_by" not in shown.text
        row = await spine.one("SELECT asked_by FROM idem.intents WHERE id = %(i)s", i=intent)
        assert row == {"asked_by": "test"}, "the label of its token"
        await waiting.refuses("wants", "approve", (await asked_of_two(waiting, api)), by="test@desk")
        await waiting.approve(intent)
        assert (await api.ask(amount=BIG)).json()["code"] == "in_progress"
        await spine.work()
        assert (await api.ask(amount=BIG)).status_code == 201


async def asked_of_two(waiting: Waiting, api: object) -> object:
    response = await api.ask(path="/v1/intents/pay.keyed.two", amount=1, key="two")  # type: ignore[attr-defined]
    assert response.status_code == 202
    return api.intent(response)  # type: ignore[attr-defined]


async def test_a_wait_ends_with_202_or_with_the_decision(waiting: Waiting) -> None:
    import asyncio

    async with client(waiting.spine) as api:
        waited = await api.ask(amount=BIG, headers={"Prefer": "wait=1"})
        assert (waited.status_code, waited.json()["status"]) == (202, "waiting_for_approval")
        assert waited.headers["Preference-Applied"] == "wait=1"
        asking = asyncio.create_task(api.ask(amount=BIG, headers={"Prefer": "wait=20"}))
        await asyncio.sleep(0.3)
        await waiting.reject(api.intent(waited))
        told = await asking
        assert (told.status_code, told.json()["code"]) == (403, "rejected_by_operator")
        again = await api.ask(amount=BIG)
        assert (again.status_code, again.content) == (403, told.content)
        assert again.headers["Idempotent-Replayed"] == "true"
        assert again.headers["Content-Type"] == "application/problem+json"


async def test_what_nobody_decided_about_asks_again(waiting: Waiting) -> None:
    spine = waiting.spine
    async with client(spine) as api:
        first = await api.ask(amount=BIG)
        await waiting.at_rest(api.intent(first))
        assert (await api.http.get(f"/v1/intents/{api.intent(first)}")).json()["status"] == "at_rest"
        again = await api.ask(amount=BIG)
        assert (again.status_code, again.json()["status"], again.headers["Retry-After"]) == (
            202, "waiting_for_approval", "60",
        )  # fmt: skip
    await waiting.waits(api.intent(first))


async def test_a_client_cancels_it(waiting: Waiting) -> None:
    async with client(waiting.spine) as api:
        intent = api.intent(await api.ask(amount=BIG))
        assert (await api.http.delete(f"/v1/intents/{intent}")).status_code == 200
        assert (await api.ask(amount=BIG)).json()["code"] == "cancelled"


async def test_the_description_says_it_where_it_can_happen(waiting: Waiting) -> None:
    document = openapi.document(waiting.spine.catalogue, ApiSettings())
    asks = document["paths"]["/v1/intents/pay.keyed"]["post"]["responses"]
    assert "waiting_for_approval" in asks["202"]["description"]
    assert "rejected_by_operator" in json.dumps(asks["403"])
    own = document["paths"]["/v1/intents/pay.keyed.two"]["post"]["responses"]
    assert "waiting_for_approval" in own["202"]["description"] and OWN.status == 403
    waiting.define(approve=None)
    plain = openapi.document(waiting.spine.catalogue, ApiSettings())["paths"]["/v1/intents/pay.keyed"]["post"]
    assert "403" not in plain["responses"] and "approval" not in json.dumps(plain["responses"]["202"]["description"])


async def test_the_status_of_what_waits_is_a_word_for_clients(spine: Spine) -> None:
    from idem.outbox.api.answers import SHOWN_STATUS
    from idem.outbox.domain.states import OutboxStatus

    assert set(SHOWN_STATUS) == set(OutboxStatus)
