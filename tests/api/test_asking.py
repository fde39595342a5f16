"""POST /v1/intents/{operation}: each decision of accept as its answer, over a real socket."""

import json
from uuid import uuid4

import httpx
import pytest
from fix_api import Client, client
from fix_spine import Spine

from idem import Answer
from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.config.settings import SweeperSettings
from idem.sweeper.daemon import Sweeper


async def test_a_new_wish_is_in_the_database_when_the_client_hears_of_it(api: Client, spine: Spine) -> None:
    response = await api.ask()
    assert response.status_code == 202
    told = response.json()
    assert told == {"intent": told["intent"], "operation": "pay.keyed", "state": "in_progress", "status": "queued"}
    assert (response.headers["Location"], response.headers["Retry-After"]) == (f"/v1/intents/{told['intent']}", "1")
    assert response.headers["Cache-Control"] == "no-store"
    assert (await spine.key(api.intent(response)))["state"] == "in_progress"


async def test_the_same_again_hears_409_and_then_the_same_bytes(api: Client, spine: Spine) -> None:
    first = await api.ask()
    running = await api.ask()
    assert (running.status_code, running.json()["code"]) == (409, "in_progress")
    assert running.json()["intent"] == first.json()["intent"]
    assert int(running.headers["Retry-After"]) >= 1
    await spine.work()
    done = [await api.ask(), await api.ask(key='"k1"')]
    assert {response.status_code for response in done} == {201}
    assert len({response.content for response in done}) == 1
    assert json.loads(done[0].content)["intent"] == first.json()["intent"]
    for response in done:
        assert response.headers["Idempotent-Replayed"] == "true"
        assert response.headers["Idempotency-Key-Expires"].endswith(" GMT")
        assert response.headers["Idempotency-Key-Completed"].endswith(" GMT")
    assert spine.effects() == 1


async def test_an_operation_may_say_202_while_it_runs(spine: Spine) -> None:
    spine.know("pay.patient", while_running="accepted")
    async with client(spine) as api:
        first, second = [await api.ask(path="/v1/intents/pay.patient") for _ in range(2)]
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json() == second.json()


async def test_other_content_is_refused_also_while_it_runs(api: Client, spine: Spine) -> None:
    first = await api.ask(amount=100)
    while_it_runs = await api.ask(amount=101)
    await spine.work()
    afterwards = await api.ask(amount=101)
    for response in (while_it_runs, afterwards):
        assert (response.status_code, response.json()["code"]) == (422, "key_reused")
        assert response.json()["intent"] == first.json()["intent"]
    assert spine.effects() == 1


async def test_the_profile_of_stripe_says_400_instead(spine: Spine) -> None:
    async with client(spine, settings=ApiSettings(profile="stripe")) as api:
        await api.ask(amount=100)
        response = await api.ask(amount=101)
    assert (response.status_code, response.json()["code"], response.json()["status"]) == (400, "key_reused", 400)


async def test_unknown_is_a_409_of_its_own_and_nobody_executes(api: Client, spine: Spine) -> None:
    spine.bank.script(None, ["act_then_drop"])
    await api.ask()
    await spine.work()
    response = await api.ask()
    assert (response.status_code, response.json()["code"]) == (409, "outcome_unknown")
    assert 1 <= int(response.headers["Retry-After"]) <= 10
    assert spine.effects() == 1


async def test_failed_retryable_is_taken_up_again(spine: Spine) -> None:
    spine.know("pay.impatient", start_within=1, retry="client")
    async with client(spine) as api:
        first = await api.ask(path="/v1/intents/pay.impatient")
        await spine.execute("UPDATE idem.outbox SET start_before = statement_timestamp() - interval '1 s'")

        await spine.sweep()
        assert (await spine.key(api.intent(first)))["state"] == "failed_retryable"
        again = await api.ask(path="/v1/intents/pay.impatient")
        assert again.status_code == 202
        assert api.intent(again) == api.intent(first)
        assert (await spine.key(api.intent(first)))["state"] == "in_progress"


async def test_a_dead_letter_that_needs_a_person(api: Client, spine: Spine) -> None:
    first = await api.ask(amount=-5)
    await spine.work()
    assert await spine.letters(api.intent(first)) == ["rejected"]
    response = await api.ask(amount=-5)
    assert (response.status_code, response.json()["code"]) == (409, "needs_operator")
    assert int(response.headers["Retry-After"]) >= 600


async def test_an_expired_key_is_gone_and_then_new_or_refused(spine: Spine) -> None:
    """The header says that a key was used again after it had expired."""
    spine.know("pay.strict", after_expiry="refuse")
    sweeper = Sweeper(spine.database, spine.catalogue, SweeperSettings(tombstone_ttl=60))
    async with client(spine) as api:
        paths = ["/v1/intents/pay.keyed", "/v1/intents/pay.strict"]
        first = [await api.ask(path=path) for path in paths]
        await spine.work()
        await spine.advance(4 * 86400)
        await sweeper.run_once()
        for path, before in zip(paths, first, strict=True):
            gone = await api.ask(path=path)
            assert (gone.status_code, gone.json()["code"]) == (410, "key_expired")
            assert gone.headers["Idempotency-Key-Expired"] == "true"
            assert gone.json()["intent"] == before.json()["intent"]
        await spine.advance(120)
        await sweeper.run_once()
        anew, refused = [await api.ask(path=path) for path in paths]
        assert anew.status_code == 202
        assert anew.json()["intent"] != first[0].json()["intent"]
        assert (refused.status_code, refused.json()["code"]) == (410, "key_expired")


@pytest.mark.parametrize(
    "answer",
    [
        Answer(204, b"", {}),
        Answer(201, bytes(range(256)) * 4096, {"content-type": "application/octet-stream", "x-chosen": "yes"}),
        Answer(200, "é\u2028 \n".encode() * 10, {"content-type": "text/plain; charset=utf-8"}),
    ],
    ids=["empty", "a megabyte", "text"],
)
async def test_a_replay_is_the_same_bytes(spine: Spine, answer: Answer) -> None:
    spine.know("pay.told", answer=lambda outcome, intent: answer)
    async with client(spine) as api:
        await api.ask(path="/v1/intents/pay.told")
        await spine.work()
        before = [await api.ask(path="/v1/intents/pay.told") for _ in range(2)]
    async with client(spine) as api:
        after = await api.ask(path="/v1/intents/pay.told")
    for response in (*before, after):
        assert (response.status_code, response.content) == (answer.status, answer.body)
        for name, value in answer.headers.items():
            assert response.headers[name] == value


async def test_tenants_share_neither_keys_nor_intents(api: Client, spine: Spine) -> None:
    mine = await api.ask()
    async with client(spine, "other") as other:
        theirs = await other.ask()
        assert theirs.status_code == 202
        assert theirs.json()["intent"] != mine.json()["intent"]
        for method in ("GET", "DELETE"):
            response = await other.http.request(method, f"/v1/intents/{mine.json()['intent']}")
            assert (response.status_code, response.json()["code"]) == (404, "not_found")
        listed = (await other.http.get("/v1/intents")).json()["intents"]
        assert [each["id"] for each in listed] == [theirs.json()["intent"]]


async def test_operations_do_not_share_a_key(api: Client) -> None:
    one, other = await api.ask(), await api.ask(path="/v1/intents/pay.keyless")
    assert (one.status_code, other.status_code) == (202, 202)
    assert one.json()["intent"] != other.json()["intent"]


@pytest.mark.parametrize("token", [None, "", "Bearer", "Bearer wrong", "Basic abc", "Bearer \xff"])
async def test_no_or_a_wrong_token(api: Client, token: str | None) -> None:
    headers = {} if token is None else {"Authorization": token.encode("latin-1")}
    async with httpx.AsyncClient(base_url=api.url, verify=False) as stranger:
        response = await stranger.post("/v1/intents/pay.keyed", json={}, headers=headers)
    assert (response.status_code, response.json()["code"]) == (401, "unauthorized")
    assert response.headers["WWW-Authenticate"].startswith("Bearer")


async def test_what_is_not_here(api: Client) -> None:
    assert (await api.ask(path="/v1/intents/no.such")).status_code == 404
    assert (await api.http.get(f"/v1/intents/{uuid4()}")).json()["code"] == "not_found"
    assert (await api.http.get("/v1/intents/abc")).status_code == 404
    assert (await api.http.get("/nothing")).json()["code"] == "not_found"
    refused = await api.http.put("/v1/intents/pay.keyed")
    assert (refused.status_code, refused.json()["code"]) == (405, "method_not_allowed")
    assert refused.headers["Allow"] == "POST"
    refused = await api.http.put(f"/v1/intents/{uuid4()}")
    assert refused.headers["Allow"] == "DELETE, GET, HEAD"


async def test_every_type_of_problem_has_a_page(api: Client) -> None:
    response = await api.ask(key=None)
    assert response.headers["content-type"] == "application/problem+json"
    page = await api.http.get(response.json()["type"])
    assert page.status_code == 200
    assert "key_missing" in page.text
    assert page.headers["content-type"].startswith("text/html")
    assert (await api.http.get("/problems/nothing")).status_code == 404


async def test_an_intent_is_shown_with_its_answer_and_its_story(api: Client, spine: Spine) -> None:
    made = await api.ask()
    await spine.work()
    found = (await api.http.get(made.headers["Location"])).json()
    assert (found["state"], found["outcome"], found["status"], found["key"]) == ("completed", "succeeded", None, "k1")
    assert (found["answer"]["status"], found["answer"]["body"]["intent"]) == (201, found["id"])
    assert next((e["source"], e["kind"]) for e in found["timeline"]) == ("accept", "accepted")
    assert {name for entry in found["timeline"] for name in entry} == {
        "at", "source", "kind", "outcome", "state", "status",
    }  # fmt: skip


async def test_lists_come_in_pages(api: Client) -> None:
    made = [(await api.ask(key=f"k{n}")).json()["intent"] for n in range(5)]
    first = (await api.http.get("/v1/intents?limit=3&state=in_progress")).json()
    rest = (await api.http.get(f"/v1/intents?limit=3&state=in_progress&before={first['next']}")).json()
    assert [each["id"] for each in first["intents"] + rest["intents"]] == made[::-1]
    assert rest["next"] is None
    one = (await api.http.get("/v1/intents?key=k3&operation=pay.keyed")).json()["intents"]
    assert [each["id"] for each in one] == [made[3]]
    for query in ("limit=0", "limit=x", "state=gone", "before=1", "key=k3", "what=1", "limit=1&limit=2"):
        response = await api.http.get(f"/v1/intents?{query}")
        assert (response.status_code, response.json()["code"]) == (400, "query_invalid"), query


async def test_hazard_51_a_cancelled_wish_is_never_executed_by_a_duplicate(api: Client, spine: Spine) -> None:
    made = await api.ask()
    for _ in range(2):
        done = await api.http.delete(made.headers["Location"])
        assert (done.status_code, done.json()["outcome"]) == (200, "cancelled")
    assert await api.told() == (409, "cancelled")
    assert await spine.works() == 0
    assert ("client", "cancelled", None) in await spine.evidence(api.intent(made))


async def test_what_was_sent_cannot_be_cancelled(api: Client, spine: Spine) -> None:
    spine.bank.script(None, ["act_then_drop"])
    made = await api.ask()
    await spine.work()
    response = await api.http.delete(made.headers["Location"])
    assert (response.status_code, response.json()["code"]) == (409, "not_cancellable")
    assert "unknown" in response.json()["detail"]


async def test_health_readiness_metrics_and_the_description(api: Client) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        async with httpx.AsyncClient(base_url=api.url, verify=False) as stranger:
            assert (await stranger.get(path)).status_code == 200, path
    api.api.drain()
    assert (await api.http.get("/readyz")).status_code == 503
    assert (await api.http.get("/healthz")).status_code == 200
