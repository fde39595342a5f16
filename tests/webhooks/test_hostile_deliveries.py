"""Hostile deliveries, forms and commands of the provider layer."""

import json
from typing import Any

import pytest
from fix_desk import Desk
from fix_webhooks import Hooks, signed

from idem.errors import Unrenderable
from idem.outbox.providers import events as reading
from idem.outbox.providers.body_encoding import encoded
from idem.outbox.providers.reading import Facts
from idem.outbox.providers.webhook_settings import WebhookSettings
from idem.outbox.values.json_pointer import parse

DEEP = "[" * 900 + "]" * 900
TOO_DEEP = "[" * 1000 + "]" * 1000


@pytest.mark.parametrize(
    ("shown", "status", "state"),
    [
        ('{"id":"pay_1","status":"succeeded","amount":{"a":1,"a":2}}', 200, "completed"),
        ('{"id":"pay_1","status":"succeeded","amount":' + DEEP + "}", 200, "completed"),
        ('{"id":"pay_1","status":"succeeded","amount":' + TOO_DEEP + "}", 400, "unknown"),
        ('{"id":"pay_1","status":"succeeded","amount":1e999999999999999999999}', 200, "completed"),
        ('{"id":"pay_1","id":"pay_2","status":"succeeded"}', 200, "unknown"),
        ('{"id":"\\ud800","status":"succeeded"}', 200, "unknown"),
        ('{"id":"a\\u0000b","status":"succeeded"}', 200, "unknown"),
        ('{"id":true,"status":"succeeded"}', 200, "unknown"),
        ('{"id":"pay_1","status":["succeeded"]}', 200, "unknown"),
        ('{"id":' + "9" * 4000 + ',"status":"succeeded"}', 400, "unknown"),
        ('{"id":' + "[" * 100_000 + "}", 400, "unknown"),
    ],
)
async def test_signed_nonsense_is_never_a_500_and_settles_nothing(
    hooks: Hooks, shown: str, status: int, state: str
) -> None:
    intent = await hooks.desk.unknown("k")
    shown = f'{shown[:-1]},"idempotency_key":"{await hooks.key(intent)}"}}'
    body = f'{{"type":"payment.succeeded","data":{shown}}}'.encode()
    answer = await hooks.post(body, signed(body, "msg_1"))
    assert answer.status_code == status, answer.text
    assert (await hooks.desk.state(intent))[0] == state


@pytest.mark.parametrize("name", ["idem_key]", "a][b", "[", "idem_key[0"])
@pytest.mark.parametrize("deep", [False, True])
def test_a_name_with_a_bracket_is_no_member_of_a_form(name: str, deep: bool) -> None:
    """Read by Rack or qs, metadata[idem_key]] is the member with our tag."""
    content: Any = {"metadata": {"idem_key": "ours", name: "theirs"}}
    with pytest.raises(Unrenderable, match="bracket"):
        encoded({"items": [content]} if deep else content, "form")
    assert encoded({"metadata[order]": 1}, "form") == b"metadata%5Border%5D=1"


def test_a_batch_that_would_grow_beyond_measure_is_not_readable() -> None:
    """What stands around the list is kept with each item: a megabyte would become gigabytes."""
    reader = WebhookSettings(event_id=(parse("/id"),), events=parse("/events"))
    huge = {"around": "x" * 500_000, "events": [{"id": str(number)} for number in range(20_000)]}
    assert reading.read(reader, json.dumps(huge).encode(), Facts(())) is None
    many = {"live": "true", "events": [{"id": str(number)} for number in range(20_000)]}
    events = reading.read(reader, json.dumps(many).encode(), Facts(()))
    assert events is not None and len(events) == 20_000


@pytest.mark.parametrize("command", ["pause", "resume"])
async def test_an_empty_account_is_not_all_of_them(desk: Desk, command: str) -> None:
    """As `--account "$ACCOUNT"` of a script writes it."""
    why = ("--reason", "a script")
    assert (await desk.cli("pause", "keyed", *why)).code == 0
    before = await desk.spine.all("SELECT * FROM idem.lane_changes ORDER BY id")
    done = await desk.cli(command, "keyed", "--account", "", *why)
    assert (done.code, "it is empty" in done.err) == (2, True), done.err
    assert await desk.spine.all("SELECT * FROM idem.lane_changes ORDER BY id") == before


@pytest.mark.parametrize(
    "since", ["99999999999d", "-1h", "0s", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "nan"]
)
async def test_a_time_that_cannot_be_compared_is_refused_in_words(desk: Desk, since: str) -> None:
    done = await desk.cli("reconcile", f"--since={since}", "--dry-run")
    assert done.code in (1, 2) and "--since" in done.err and "Traceback" not in done.err
