"""The bank as a process, its settings, and many at its counter at once."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time

import httpx
import pytest

from idem.testing.bank import (
    Bank,
    BankAccount,
    BankSettings,
    CancelByKey,
    SecondRequest,
    SettingsError,
    StripeSettings,
    WebhookOrder,
    read_log,
)


def test_a_process_says_its_url_and_ends_cleanly_at_sigterm(bank_process, pay, log_path):
    process, url = bank_process(BankSettings(log=log_path))
    assert url.startswith("http://127.0.0.1:")
    with pytest.raises(httpx.ReadTimeout):
        pay(url, "k", fault="act_then_stall", timeout=0.2)
    held = httpx.Client(verify=False)
    assert held.get(f"{url}/payments").status_code == 200
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == 0
    assert time.monotonic() - begun < 2
    assert process.stderr is not None and process.stderr.read() == ""
    assert len(read_log(log_path).effects()) == 1
    held.close()


def test_a_request_in_hand_is_answered_before_the_end(bank_process, log_path):
    process, url = bank_process(BankSettings(latency=0.5, log=log_path))

    async def pay_and_end():
        async with httpx.AsyncClient(verify=False) as client:
            call = asyncio.create_task(client.post(f"{url}/payments", json={"amount": 5, "currency": "eur"}))
            while not read_log(log_path).requests:
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            return await call

    assert asyncio.run(pay_and_end()).status_code == 201
    assert process.wait(5) == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "Invalid JSON"), ('{"fault_rat": 1}', "did you mean fault_rate?"), ('{"port": "x"}', "port")],
)
def test_a_process_with_wrong_settings_says_so(tmp_path, content, said):
    path = tmp_path / "settings.json"
    path.write_text(content)
    ran = subprocess.run([sys.executable, "-m", "idem.testing.bank", str(path)], capture_output=True, text=True)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_port_that_is_taken(bank_process):
    with Bank().in_thread() as bank:
        process, url = bank_process(BankSettings(port=bank.port))
        assert (process.wait(10), url) == (2, "")
        with pytest.raises(OSError, match="in use"), Bank(BankSettings(port=bank.port)).in_thread():
            pass


def test_settings_read_back_as_they_are_written(tmp_path):
    settings = BankSettings(
        log=tmp_path / "log",
        accounts=(
            BankAccount(
                "a", "t", SecondRequest.CURRENT, None, 3.5, webhook_url="http://h/", webhook=WebhookOrder(2, 1.0, 3)
            ),
            BankAccount.parse("b:u:none:7d:15m"),
            BankAccount(
                "c", "v", api="stripe", stripe=StripeSettings(events_lag=2.0), old_webhook_secrets=("whsec_old",)
            ),
            BankAccount("d", "w", cancel=CancelByKey("/void", blocks_late_requests=True)),
            BankAccount("e", "x", cancel=None),
        ),
        faults={"429:3": 2.0},
        script=({"match": {"nth": 1}, "faults": ["503"]},),
    )
    assert BankSettings.from_json(settings.to_json()) == settings
    assert BankSettings.from_json("{}") == BankSettings()


def test_an_account_on_the_command_line():
    assert BankAccount.parse("a:t") == BankAccount("a", "t")
    assert BankAccount.parse("a:t:success_only:24h:2.5") == BankAccount(
        "a", "t", SecondRequest.SUCCESS_ONLY, 86400.0, 2.5
    )
    assert BankAccount.parse("a:t::forever:") == BankAccount("a", "t", retention=None)
    assert BankAccount.parse("a:sk_test_1:stored:24h::stripe") == BankAccount("a", "sk_test_1", api="stripe")


@pytest.mark.parametrize(
    "text", ["", "a", "a:", ":t", "a:t:sometimes", "a:t:none:soon", "a:t:none:1:2:3", "a:t:none:1:2:own:4"]
)
def test_an_account_that_is_none(text):
    with pytest.raises(SettingsError):
        BankAccount.parse(text)


@pytest.mark.parametrize(
    "given",
    [
        {"fault_rate": 2},
        {"faults": {"no_such": 1}},
        {"accounts": ()},
        {"accounts": (BankAccount(), BankAccount())},
        {"latency": -1},
    ],
)
def test_settings_that_make_no_sense(given):
    with pytest.raises(SettingsError):
        BankSettings(**given)


@pytest.mark.parametrize(
    ("account", "said"),
    [
        ({"api": "strip"}, "api: Input should be 'own' or 'stripe'"),
        ({"api": "stripe", "shape": {"says": {}, "errors": {}}}, "a shape is for the bank's own API"),
        ({"api": "stripe", "stripe": {"events_lag": -1}}, "events_lag must be 0 or more"),
        ({"api": "stripe", "stripe": {"event_lag": 1}}, "did you mean events_lag?"),
        ({"old_webhook_secrets": ["x"]}, "must begin with whsec_"),
    ],
)
def test_accounts_that_make_no_sense(account, said):
    with pytest.raises(SettingsError, match=re.escape(said)):
        BankSettings.from_json(json.dumps({"accounts": [account]}))


def test_a_script_in_the_settings_is_checked_at_once():
    with pytest.raises(SettingsError):
        Bank(BankSettings(script=({"faults": ["no_such"]},)))


async def test_a_hundred_connections_at_once(bank_process, log_path):
    _, url = bank_process(BankSettings(log=log_path))
    body = b'{"amount":500,"currency":"eur"}'

    async def client(number):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        for n in range(10):
            head = f"POST /payments HTTP/1.1\r\nhost: b\r\nidempotency-key: {number}-{n}\r\ncontent-length: {len(body)}"
            writer.write(head.encode() + b"\r\n\r\n" + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 201")
            length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
        writer.close()

    begun = time.monotonic()
    await asyncio.gather(*(client(number) for number in range(100)))
    rate = 1000 / (time.monotonic() - begun)
    log = read_log(log_path)
    assert (len(log.effects()), len(log.sends_by_key())) == (1000, 1000)
    assert all(send.status == 201 for send in log.sends())
    assert rate > 150 or (os.cpu_count() or 1) < 2, f"{rate:.0f} requests a second"
