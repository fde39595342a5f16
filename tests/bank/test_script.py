"""Scripts, hooks and the seed."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fix_waiting import until_it_holds

from idem.testing.bank import (
    Bank,
    BankFault,
    BankSettings,
    FaultName,
    RequestMatch,
    ScriptStep,
    SettingsError,
    kill_pid_on_effect,
)


def test_steps_are_taken_in_order_by_what_matches(bank, pay):
    bank.script(RequestMatch(reference="a"), ["503", None, ScriptStep(BankFault(FaultName.TOO_MANY_REQUESTS, 9))])
    bank.script({"key": "k"}, ["decline"])
    assert [pay(bank, reference="a").status_code for _ in range(4)] == [503, 201, 429, 201]
    assert pay(bank, "k").status_code == 402
    assert pay(bank, "other").status_code == 201
    assert bank.stats()["script_left"] == 0


def test_a_function_may_match(bank, pay):
    bank.script(lambda request: (request.reference or "").startswith("bad"), ["503"])
    assert (pay(bank, reference="good").status_code, pay(bank, reference="bad-1").status_code) == (201, 503)


def test_the_nth_sending_of_a_key(bank, pay):
    bank.script({"nth": 2}, ["503", "503"])
    assert [pay(bank, key).status_code for key in ("a", "a", "b", "b", "b")] == [201, 503, 201, 503, 201]


def test_a_script_can_be_forgotten(bank, pay):
    bank.script(None, ["503"] * 5)
    bank.forget_script()
    assert pay(bank).status_code == 201


@pytest.mark.parametrize(
    "given",
    [
        {"match": {"colour": "red"}, "faults": ["503"]},
        {"match": {}, "faults": ["no_such"]},
        {"match": {}, "faults": []},
        {"match": {}, "faults": "503"},
        {"faults": [{"kill_pid": 0}]},
        {"faults": [{"kill_pid": -5}]},
        {"faults": [{"kill_pid": True}]},
        {"faults": [{"on": "later"}]},
        {"faults": [{"fuss": 1}]},
        {"faults": [3]},
        {"faults": ["503"], "times": 0},
        {"faults": [{"command": ["true"]}]},
        [],
    ],
)
def test_a_script_that_makes_no_sense_is_refused(bank, given, http):
    response = http.post(f"{bank.url}/_bank/script", json=given)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_script")
    assert bank.stats()["script_left"] == 0


def test_the_stage_door(open_bank, pay, http):
    bank = open_bank(lookup_lag=50)
    rule = {"match": {"account": "main", "path": "/pay*"}, "faults": ["503", {"fault": "decline"}], "times": 2}
    added = http.post(f"{bank.url}/_bank/script", json=rule)
    assert (added.status_code, added.json()) == (201, {"added": 4, "left": 4})
    assert [pay(bank).status_code for _ in range(2)] == [503, 402]
    stats = http.get(f"{bank.url}/_bank/stats").json()
    assert (stats["script_left"], stats["payments"], stats["effects"]) == (2, 1, 0)
    assert stats["faults"] == {"503": 1, "decline": 1}
    http.delete(f"{bank.url}/_bank/script")
    pay(bank, reference="r")
    http.post(f"{bank.url}/_bank/clock", json={"shift": 50})
    assert len(http.get(f"{bank.url}/payments?reference=r").json()["data"]) == 1
    assert http.post(f"{bank.url}/_bank/clock", json={"shift": -1}).status_code == 400
    # A page in a browser can send this type without asking; the stage door does not open to it.
    plain = http.post(f"{bank.url}/_bank/script", content=b"{}", headers={"content-type": "text/plain"})
    assert plain.status_code == 415
    # Nothing of all this stands in the log.
    assert len(bank.log.requests) == 4


def test_without_control_there_is_no_stage_door(open_bank, http):
    assert http.get(f"{open_bank(control=False).url}/_bank/stats").status_code == 404


def test_the_same_seed_gives_the_same_faults_in_any_order(pay, tmp_path):
    def faults(seed, order):
        settings = BankSettings(seed=seed, fault_rate=0.5, faults={"503": 1, "500_before_acting": 2, "decline": 1})
        with Bank(settings).in_thread() as bank:
            with ThreadPoolExecutor(40) as pool:
                list(pool.map(lambda n: pay(bank, f"key-{n}"), order))
            return {(r.key, r.nth): r.fault for r in bank.log.sends()}

    keys = list(range(40))
    first = faults(1, keys)
    assert faults(1, keys[::-1]) == first
    assert faults(2, keys) != first
    assert 8 <= sum(fault is not None for fault in first.values()) <= 32
    assert {"503", "500_before_acting", "decline", None} == set(first.values())


def test_a_key_does_not_meet_the_same_fault_for_ever(open_bank, pay):
    bank = open_bank(fault_rate=0.5, faults={"503": 1})
    statuses = [pay(bank, "k").status_code for _ in range(20)]
    assert set(statuses) == {201, 503}


def test_a_fault_rate_of_the_account_and_of_look_ups(open_bank, pay, http):
    bank = open_bank(fault_rate=1.0, faults={"503": 1}, lookup_fault_rate=1.0, lookup_faults={"429": 1})
    assert pay(bank).status_code == 503
    assert http.get(f"{bank.url}/payments").status_code == 429


def test_the_bank_kills_the_worker_when_it_has_acted(bank, log_path):
    body = {"amount": 5, "currency": "eur"}
    code = (
        "import httpx, sys; sys.stdin.read(1)\n"
        f"print(httpx.post('{bank.url}/payments', json={body}, headers={{'idempotency-key': 'k'}}).status_code)"
    )
    for kill in (
        lambda pid: bank.when("acted", RequestMatch(key="k"), kill_pid_on_effect(pid)),
        lambda pid: bank.script(RequestMatch(key="k", nth=2), [{"kill_pid": pid, "on": "received"}]),
    ):
        worker = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        kill(worker.pid)
        out, _ = worker.communicate(b"x", timeout=20)
        assert (worker.returncode, out) == (-9, b"")
    assert len(bank.log.effects(key="k")) == 1
    # The worker was dead before the bank had come so far.
    until_it_holds(lambda: [r.effect for r in bank.log.sends()] == ["made", "replayed"])


def test_hooks_see_the_three_moments_in_order(bank, pay):
    seen = []
    for event in ("answered", "acted", "received"):
        bank.when(
            event, None, lambda h: seen.append((h.event, h.payment is not None, h.status, len(bank.log.effects())))
        )

    # The client may have its answer before the bank has told of it.
    for number in (3, 5):
        pay(bank, "k")
        until_it_holds(lambda: len(seen) == number)  # noqa: B023
    assert seen == [
        ("received", False, None, 0),
        ("acted", True, None, 1),
        ("answered", False, 201, 1),
        ("received", False, None, 1),
        ("answered", False, 201, 1),
    ]


def test_a_hook_that_blocks_holds_up_its_own_request_only(bank, pay):
    gate, inside = threading.Event(), threading.Event()

    def hold(_):
        inside.set()
        gate.wait(10)

    bank.when("acted", {"key": "slow"}, hold, times=1)
    with ThreadPoolExecutor() as pool:
        pool.submit(pay, bank, "slow")
        assert inside.wait(5)
        assert pay(bank, "quick").status_code == 201
        gate.set()


def test_a_command_is_run_with_what_happened(pay, tmp_path):
    told = tmp_path / "told"
    step = {"command": ["sh", "-c", f'echo "$BANK_EVENT $BANK_KEY $BANK_REFERENCE" > {told}'], "on": "acted"}
    with Bank(BankSettings(script=({"match": {}, "faults": [step]},))).in_thread() as bank:
        pay(bank, "k", reference="r")
        assert told.read_text() == "acted k r\n"


def test_what_a_hook_raises_comes_out_at_the_end(pay):
    def fail(_):
        raise ValueError("boo")

    with pytest.raises(ExceptionGroup, match="callbacks"), Bank().in_thread() as bank:
        bank.when("received", None, fail)
        assert pay(bank).status_code == 201


async def test_on_the_tests_own_loop_hooks_may_be_coroutines():
    async with Bank() as bank, httpx.AsyncClient(verify=False) as client:
        acted, go_on = asyncio.Event(), asyncio.Event()

        async def hold(happening):
            acted.set()
            await go_on.wait()

        bank.when("acted", None, hold)
        body = {"amount": 5, "currency": "eur"}
        call = asyncio.create_task(client.post(f"{bank.url}/payments", json=body))
        await asyncio.wait_for(acted.wait(), 5)
        assert (len(bank.log.effects()), call.done()) == (1, False)
        go_on.set()
        assert (await call).status_code == 201
        bank.shift_clock(5)


def test_an_event_that_does_not_exist():
    with pytest.raises(SettingsError):
        Bank().when("eaten", None, lambda _: None)  # type: ignore[arg-type]
