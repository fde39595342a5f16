"""One delivery of several events: each is taken by itself, and the answer is 2xx only when all are kept."""

import json
from dataclasses import replace
from typing import Any

import pytest
from fix_desk import Desk
from fix_webhooks import READER, Hooks, event, serving
from hypothesis import given
from hypothesis import strategies as st

from idem.outbox.domain.webhook import WebhookReply
from idem.outbox.providers import batches, response
from idem.outbox.providers import events as reading
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.outcome_rules import Condition, Rule, Says
from idem.outbox.providers.reading import Facts
from idem.outbox.providers.webhook_settings import WebhookSettings
from idem.outbox.values import json_pointer
from idem.outcomes import Refused, Succeeded

P = json_pointer.parse
LIST = READER.model_copy(update={"event_id": (P("/id"),), "events": P("/events")})


@pytest.fixture
async def batching(hooks: Hooks) -> Hooks:
    """The provider `keyed` sends several events at once."""
    await hooks.change(events=LIST)
    return hooks


def item(id: str | None, key: object, status: str = "succeeded", reference: str = "pay_1") -> dict[str, Any]:
    return ({} if id is None else {"id": id}) | event(key, status, reference)


async def test_each_event_of_a_batch_does_what_it_says(hooks: Hooks, batching: Hooks) -> None:
    first, second = await hooks.desk.unknown("k1"), await hooks.desk.unknown("k2")
    content = {
        "meta": {"n": 1.10},
        "events": [
            item("ev_1", await hooks.key(first)),
            item("ev_2", await hooks.key(second), "declined", "pay_2"),
            item("ev_3", None, reference="pay_of_nobody"),
        ],
    }
    answer = await batching.send(content)
    assert answer.status_code == 200
    assert answer.json() == {
        "events": [
            {"event": "ev_1", "fate": "applied"},
            {"event": "ev_2", "fate": "applied"},
            {"event": "ev_3", "fate": "unmatched"},
        ]
    }
    assert await hooks.desk.state(first) == await hooks.desk.state(second) == ("completed", None)
    assert (await hooks.spine.key(second))["response_status"] == 402
    again = await batching.send(content, "msg_2")
    assert {each["fate"] for each in again.json()["events"]} == {"duplicate"}
    # What is kept of each says that event alone, and everything around the list.
    kept = await hooks.spine.all("SELECT body FROM idem.webhook_bodies ORDER BY webhook_event_id")
    for number, row in enumerate(kept):
        assert json.loads(bytes(row["body"])) == content | {"events": [content["events"][number]]}


async def test_an_event_of_a_batch_that_waited_is_read_again(hooks: Hooks, batching: Hooks) -> None:
    """Unmatched when it came, between two others; its reference is written later."""
    content = {"events": [item("ev_1", None), item("ev_2", None, reference="pay_9"), item("ev_3", None)]}
    assert (await batching.send(content)).status_code == 200
    intent = await hooks.desk.awaiting("k")
    assert (await hooks.spine.reconcile()).events == 1
    await hooks.expect(intent, ("completed", None), fate="applied", id="ev_2")


async def test_a_failure_in_the_middle_is_503_and_the_repetition_is_deduplicated(hooks: Hooks, batching: Hooks) -> None:
    first, second = await hooks.desk.unknown("k1"), await hooks.desk.unknown("k2")
    content = {
        "events": [item("ev_1", await hooks.key(first)), item("ev_2", await hooks.key(second), reference="pay_2")]
    }
    await hooks.spine.execute(
        "CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.event_id = 'ev_2' THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NEW; END $$;"
        "CREATE TRIGGER fail BEFORE INSERT ON idem.webhook_events FOR EACH ROW EXECUTE FUNCTION public.fail();"
    )
    assert (await batching.send(content)).status_code == 503
    assert await hooks.desk.state(first) == ("completed", None)
    assert await hooks.desk.state(second) == ("unknown", "unknown")
    await hooks.spine.execute("DROP TRIGGER fail ON idem.webhook_events")
    answer = await batching.send(content)
    assert [each["fate"] for each in answer.json()["events"]] == ["duplicate", "applied"]
    assert await hooks.desk.state(second) == ("completed", None)


async def test_what_has_no_id_is_left_out_and_the_rest_is_kept(hooks: Hooks, batching: Hooks) -> None:
    """The id in the headers is that of the whole delivery, so it tells no event of a batch from another."""
    intent = await hooks.desk.unknown("k")
    answer = await batching.send({"events": [item(None, None), item("ev_2", await hooks.key(intent)), 7]})
    assert answer.json() == {"event": "ev_2", "fate": "applied"}
    assert len(await hooks.spine.all("SELECT 1 FROM idem.webhook_events")) == 1
    nothing = await batching.send({"events": [item(None, None), item(None, None)]})
    assert (nothing.status_code, nothing.json()["code"]) == (400, "webhook_unreadable")


@pytest.mark.parametrize(
    ("body", "status"),
    [(b'{"events": []}', 200), (b'{"events": {}}', 400), (b'{"other": []}', 400), (b'{"events":[],"events":[]}', 400)],
)
async def test_an_empty_batch_is_taken_and_no_batch_is_not(batching: Hooks, body: bytes, status: int) -> None:
    assert (await batching.send(body)).status_code == status


async def test_the_answer_that_a_provider_wants_to_hear(hooks: Hooks) -> None:
    intent = await hooks.desk.unknown("k")
    webhook = hooks.spine.provider("keyed").webhook
    assert webhook is not None
    await hooks.change(webhook=replace(webhook, reply=WebhookReply(202, b"[accepted]")))
    answer = await hooks.send(event(await hooks.key(intent)))
    assert (answer.status_code, answer.content) == (202, b"[accepted]")
    assert answer.headers["content-type"].startswith("text/plain")
    assert await hooks.desk.state(intent) == ("completed", None)
    refused = await hooks.post(b"{}", {})
    assert refused.status_code in (401, 415)


async def test_hazard_40_a_test_event_is_never_a_live_one(hooks: Hooks) -> None:
    intent = await hooks.desk.unknown("k")
    await hooks.change(events=READER.model_copy(update={"when": {"/livemode": True}}))
    content = event(await hooks.key(intent))
    assert await hooks.fate(content | {"livemode": False}, "evt_1") == "ignored"
    assert await hooks.fate(content, "evt_2") == "ignored"
    assert await hooks.desk.state(intent) == ("unknown", "unknown")
    assert await hooks.fate(content | {"livemode": True}, "evt_3") == "applied"


WRAPPED = WebhookSettings(
    events=P("/notificationItems"), event_path=P("/NotificationRequestItem"),
    event_id=(P("/pspReference"), P("/eventCode"), P("/success")), type=P("/eventCode"),
    key=(P("/merchantReference"),), reference=P("/pspReference"), object=(),
)  # fmt: skip
RULES = (
    Rule(Says.FINAL, body=(Condition(P("/eventCode"), ("AUTHORISATION",)), Condition(P("/success"), ("true",)))),
    Rule(Says.REFUSED, body=(Condition(P("/eventCode"), ("AUTHORISATION",)),)),
)


def test_items_in_a_wrapper_are_told_apart_by_several_members() -> None:
    items = [
        {"eventCode": "AUTHORISATION", "success": said, "pspReference": "881", "merchantReference": "k"}
        for said in ("true", "false")
    ]
    body = json.dumps({"live": "true", "notificationItems": [{"NotificationRequestItem": each} for each in items]})
    events = reading.read(WRAPPED, body.encode(), Facts(RULES))
    assert events is not None
    assert [each.id for each in events] == ["881/AUTHORISATION/true", "881/AUTHORISATION/false"]
    assert [type(each.said) for each in events] == [Succeeded, Refused]
    for each in events:
        assert each.body is not None
        assert reading.read(WRAPPED, each.body, Facts(RULES)) == (each,)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(
    before=st.dictionaries(st.text(max_size=4), JSON, max_size=3),
    items=st.lists(JSON, max_size=5),
    indent=st.none() | st.integers(0, 3),
    ascii=st.booleans(),
)
def test_a_delivery_is_cut_without_changing_a_byte_of_what_is_kept(
    before: dict[str, Any], items: list[Any], indent: int | None, ascii: bool
) -> None:
    before.pop("in", None)
    whole = before | {"in": {"x": [1], "list": items, "y": {}}}
    body = json.dumps(whole, indent=indent, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    if response.read_event(body) is response.UNREADABLE:
        return
    parts = batches.alone(body, P("/in/list"))
    assert [json.loads(part) for part in parts] == [
        before | {"in": {"x": [1], "list": [each], "y": {}}} for each in items
    ]


def test_numbers_and_doubled_members_stay_as_they_were_written() -> None:
    body = b'{"a":1e2,"l":[ {"n":1.10,"n":2} , 100000000000000000000.00 ],"z":[]}'
    assert batches.alone(body, P("/l")) == (
        b'{"a":1e2,"l":[{"n":1.10,"n":2}],"z":[]}',
        b'{"a":1e2,"l":[100000000000000000000.00],"z":[]}',
    )


async def test_a_provider_in_python_may_keep_the_whole_delivery(desk: Desk, hooks: Hooks) -> None:
    """Its events say no body of their own: the place in the whole one is kept."""
    known = hooks.spine.provider("keyed")

    class Whole(HttpProvider):
        def read_events(self, body: bytes) -> Any:
            return tuple(replace(each, body=None) for each in reading.read(LIST, body, Facts(self.outcome)) or ())

    fields = {name: getattr(known, name) for name in known.__dataclass_fields__}
    catalogue = hooks.spine.catalogue
    hooks.spine.catalogue = replace(catalogue, providers={**catalogue.providers, "keyed": Whole(**fields)})
    async with serving(hooks.spine.url, hooks.spine.catalogue) as url:
        content = {"events": [item("ev_1", None), item("ev_2", None, reference="pay_9")]}
        hooks.http.base_url = url
        assert (await hooks.send(content)).status_code == 200
    assert (await hooks.kept("ev_2"))["place"] == 1
    intent = await desk.awaiting("k")
    assert (await hooks.spine.reconcile()).events == 1
    assert await desk.state(intent) == ("completed", None)
