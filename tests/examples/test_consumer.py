"""The message consumer: delivered again after a SIGKILL between its commit and its ack, it does it once."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest
from examples.town import Town

FILES = ("consumer.py", "idem.toml")
EVENTS = False
CONSUMER = (sys.executable, "consumer.py")
SOLD = {"id": "m-1", "type": "item.sold", "item": "tea", "count": 2}
CANCELLED = {"id": "m-2", "type": "order.cancelled", "order": 7, "amount": 4200}


@pytest.fixture(scope="module", autouse=True)
def daemons(town: Town) -> None:
    town.run(*CONSUMER, input="")  # makes its tables
    town.do("INSERT INTO stock VALUES ('tea', 10)")
    town.daemons("consumer:idem")


def deliver(town: Town, *messages: dict[str, object]) -> list[str]:
    return town.run(*CONSUMER, input="".join(json.dumps(each) + "\n" for each in messages)).splitlines()


def killed_before_its_ack(town: Town, message: dict[str, object], committed: str) -> None:
    """The pipe for its acks is full, so it stands there, after its commit, until it is killed."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    for piece in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(write, b"." * piece)
    os.set_blocking(write, True)
    consumer = town.start(*CONSUMER, stdout=write, stdin=subprocess.PIPE)
    os.close(write)
    assert consumer.stdin is not None
    consumer.stdin.write(json.dumps(message) + "\n")
    consumer.stdin.flush()
    with contextlib.closing(consumer.stdin):
        town.until(committed, process=consumer)
        assert consumer.poll() is None
        consumer.send_signal(signal.SIGKILL)
        assert consumer.wait(30) == -signal.SIGKILL
        with os.fdopen(read, "rb") as acks:
            assert b"ack" not in acks.read()


def test_rows_of_its_own_are_written_once(town: Town) -> None:
    killed_before_its_ack(town, SOLD, "SELECT count = 8 FROM stock")
    assert deliver(town, SOLD, SOLD) == ["ack m-1", "ack m-1"]
    assert town.rows("SELECT count FROM stock") == [(8,)]
    assert town.rows("SELECT state FROM idem.intents WHERE operation = 'stock.sell'") == [("completed",)]


def test_an_effect_elsewhere_happens_once(town: Town) -> None:
    town.bank.script(None, ["act_then_drop"])
    killed_before_its_ack(town, CANCELLED, "SELECT count(*) = 1 FROM refunds")
    assert deliver(town, CANCELLED) == ["ack m-2"]
    town.until("SELECT state = 'completed' FROM idem.intents WHERE operation = 'refunds.create'")
    assert deliver(town, CANCELLED) == ["ack m-2"]
    assert (town.effects(), len(town.rows("SELECT FROM refunds"))) == (1, 1)


def test_what_cannot_be_handled_is_parked_and_holds_up_nobody(town: Town) -> None:
    wrong: list[dict[str, object]] = [
        SOLD | {"count": 3},  # the same id with other content
        {"id": "m-3", "type": "nobody.knows"},
        {"id": "m-4", "type": "item.sold", "item": "tea", "count": "many"},
        {"id": "m-5", "type": "item.sold", "item": "tea", "count": 1},
    ]
    assert deliver(town, *wrong) == ["park m-1", "park m-3", "park m-4", "ack m-5"]
    assert town.rows("SELECT count FROM stock") == [(7,)]


def test_a_failing_row_leaves_the_message_to_come_again(town: Town) -> None:
    town.do("ALTER TABLE stock ADD CONSTRAINT not_below_zero CHECK (count >= 0)")
    too_many = {"id": "m-6", "type": "item.sold", "item": "tea", "count": 50}
    assert town.run(*CONSUMER, input=json.dumps(too_many), code=1) == ""
    assert town.rows("SELECT count(*) FROM idem.idempotency_keys WHERE idempotency_key = 'm-6'") == [(0,)]
    town.do("UPDATE stock SET count = 60")
    assert deliver(town, too_many) == ["ack m-6"]
    assert town.rows("SELECT count FROM stock") == [(10,)]
