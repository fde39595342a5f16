"""What a call proves itself with, from idem.toml to the wire: bearer, basic, and a signature over the frozen bytes."""

import base64
import hashlib
import hmac
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from fix_respx import Mocked

from idem.errors import ConfigError
from idem.outbox.calls.request_head import check_account, head
from idem.outbox.config import load
from idem.outbox.domain.contract import Account, FrozenRequest, ProviderRequest
from idem.outbox.domain.provider import Provider
from idem.outbox.providers.signing import HmacSigner, compile_over
from idem.sending import Question

KEY = "0b5f9b7e-2f3a-8c1d-9e4f-112233445566"
SECRET = "sk_secret"
ENV = {"USER_NAME": "user", "PASSWORD": "pass:word", "SHARED": SECRET, "TOKEN": "sk_token"}
TOML = """
[providers.bank]
key = {{ carrier = "header", name = "Idempotency-Key", replay = "stored", retention = "24h" }}
errors = {{ shape = "/error/code" }}
outcome = [{{ says = "final", when = {{ "/status" = "succeeded" }} }}]
lookup.by_key = {{ path = "/payments?key={{idem.key}}", match = "/key" }}
accounts.main = {{ origin = "{origin}", {credentials} }}
"""


def made(tmp_path: Path, origin: str, credentials: str) -> Provider:
    path = tmp_path / "idem.toml"
    path.write_text(TOML.format(origin=origin, credentials=credentials))
    return load(path, ENV).providers["bank"]


@pytest.fixture
def psp(mocked: Any) -> Mocked:
    """A provider that answers every request."""
    made: Mocked = mocked(lambda request: httpx.Response(201, json={"id": "p-1"}))
    return made


async def sent(dial: Any, psp: Mocked, tmp_path: Path, credentials: str) -> list[httpx.Request]:
    """The request of an operation, and a look-up, as they arrive."""
    provider = made(tmp_path, psp.origin, credentials)
    account = provider.accounts["main"]
    frozen = provider.freeze(ProviderRequest("POST", "/payments?live=1", {"amount": 1250, "name": "Zoë"}), KEY)
    (look,) = provider.questions(Question(KEY, None, awaiting=False))
    for request in (frozen, look):
        assert (await dial(psp.origin, request, account=account)).complete
        kept = repr((request, provider, account)) + str(request.headers)
        assert not any(secret in kept for secret in ENV.values() if secret != "user")
        assert "ignature" not in str(request.headers)
    return psp.requests


async def test_bearer(dial: Any, psp: Mocked, tmp_path: Path) -> None:
    said = 'authorization = { env = "TOKEN", prefix = "Bearer " }'
    for request in await sent(dial, psp, tmp_path, said):
        assert request.headers["authorization"] == "Bearer sk_token"


@pytest.mark.parametrize(
    ("said", "pair"),
    [
        ('user = { env = "USER_NAME" }, password = { env = "PASSWORD" }', b"user:pass:word"),
        ('user = { env = "TOKEN" }', b"sk_token:"),
    ],
    ids=["both", "a key in place of the user"],
)
async def test_basic(dial: Any, psp: Mocked, tmp_path: Path, said: str, pair: bytes) -> None:
    for request in await sent(dial, psp, tmp_path, f"basic = {{ {said} }}"):
        scheme, _, word = request.headers["authorization"].partition(" ")
        assert (scheme, base64.b64decode(word)) == ("Basic", pair)


async def test_a_signature_is_over_the_bytes_that_arrive(dial: Any, psp: Mocked, tmp_path: Path) -> None:
    """Recomputed from the wire alone, for the call and for the look-up."""
    write, look = await sent(dial, psp, tmp_path, 'signature = { secret = { env = "SHARED" } }')
    for request in (write, look):
        stamp = request.headers["x-timestamp"]
        assert abs(int(stamp) - time.time()) < 60
        signed = b"\n".join((request.method.encode(), request.url.raw_path, stamp.encode(), request.content))
        assert request.headers["x-signature"] == hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert write.content == '{"amount":1250,"name":"Zoë"}'.encode()
    assert (look.method, look.url.raw_path[:22]) == ("GET", b"/payments?key=0b5f9b7e")


async def test_it_stands_beside_other_credentials_in_the_form_that_the_provider_wants(
    dial: Any, psp: Mocked, tmp_path: Path
) -> None:
    said = """
        headers = { X-Api-Key = { env = "TOKEN" } },
        signature = { secret = { env = "SHARED", prefix = "v1-" }, header = "Signature", prefix = "sha512=", \
        algorithm = "sha512", encoding = "base64", over = '{timestamp}.{host}.{body}', \
        timestamp_header = "Date-Signed", timestamp = "rfc3339" }"""
    write, _ = await sent(dial, psp, tmp_path, said.replace("\n", " "))
    told, body = write.headers, write.content
    assert told["x-api-key"] == "sk_token"
    assert abs(datetime.fromisoformat(told["date-signed"]).timestamp() - time.time()) < 60
    signed = f"{told['date-signed']}.{told['host']}.".encode() + body
    digest = hmac.new(b"v1-sk_secret", signed, hashlib.sha512).digest()
    assert told["signature"] == "sha512=" + base64.b64encode(digest).decode()


async def test_the_same_frozen_bytes_are_signed_anew_at_each_sending(dial: Any, psp: Mocked) -> None:
    """The body cannot change between attempts, and the time must."""
    seen: list[float] = []

    class Counting:
        def headers(self, request: FrozenRequest, origin: str, now: float) -> dict[str, str]:
            seen.append(now)
            return {"X-Signature": f"{len(seen)} {request.body.decode()} {origin}"}

    account = Account("main", psp.origin, {}, Counting())
    for _ in range(2):
        assert (await dial(psp.origin, account=account)).complete
    first, second = (request.headers["x-signature"] for request in psp.requests)
    assert first.partition(" ")[2] == second.partition(" ")[2] == f'{{"amount": 100}} {psp.origin}'
    assert first != second
    assert all(abs(now - time.time()) < 60 for now in seen)


@pytest.mark.parametrize(
    ("stamp", "form"),
    [("seconds", "1764327600"), ("milliseconds", "1764327600250"), ("rfc3339", "2025-11-28T11:00:00Z")],
)
def test_the_forms_of_the_time(stamp: Any, form: str) -> None:
    signer = HmacSigner(b"k", compile_over("{timestamp}"), timestamp=stamp)
    made = signer.headers(FrozenRequest("POST", "/", {}, b""), "https://api.test", 1764327600.25)
    assert made["X-Timestamp"] == form
    assert made["X-Signature"] == hmac.new(b"k", form.encode(), hashlib.sha256).hexdigest()


def test_without_the_time_in_it_there_is_no_header_for_it() -> None:
    """As GitHub signs, whose documentation has this example."""
    signer = HmacSigner(b"It's a Secret to Everybody", compile_over("{body}"), "X-Hub-Signature-256", "sha256=")
    assert signer.headers(FrozenRequest("POST", "/", {}, b"Hello, World!"), "https://api.test", 0.0) == {
        "X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    }


class Broken:
    def headers(self, request: FrozenRequest, origin: str, now: float) -> dict[str, str]:
        raise ValueError("sk_secret is no key")


class Doubling:
    def headers(self, request: FrozenRequest, origin: str, now: float) -> dict[str, str]:
        return {"authorization": "sk_secret"}


class Splitting:
    def headers(self, request: FrozenRequest, origin: str, now: float) -> dict[str, str]:
        return {"X-Signature": "sk_secret\r\nX-Evil: 1"}


@pytest.mark.parametrize("signer", [Broken(), Doubling(), Splitting()], ids=lambda signer: type(signer).__name__)
async def test_a_signer_that_fails_is_our_mistake_and_nothing_is_sent(dial: Any, psp: Mocked, signer: Any) -> None:
    """Refused before anything happens, and without a word of what it signs with."""
    account = Account("main", psp.origin, {"Authorization": "Bearer sk_token"}, signer)
    with pytest.raises(ConfigError, match="account 'main'") as refused:
        await dial(psp.origin, account=account)
    assert not re.search("sk_secret|sk_token", str(refused.value))
    assert refused.value.__cause__ is None
    assert psp.requests == []
    with pytest.raises(ConfigError):
        check_account(account)


def test_a_signature_never_takes_the_place_of_a_header_of_the_request() -> None:
    account = Account("main", "https://api.test", {}, HmacSigner(b"k", compile_over("{body}")))
    with pytest.raises(ConfigError, match="'x-signature' is in the request and in the credentials"):
        head(account, FrozenRequest("POST", "/", {"X-Signature": "mine"}, b""))


def test_a_process_that_only_accepts_needs_none_of_them(tmp_path: Path) -> None:
    path = tmp_path / "idem.toml"
    said = 'basic = { user = { env = "NONE" } }, signature = { secret = { env = "NONE" } }'
    path.write_text(TOML.format(origin="https://api.test", credentials=said))
    account = load(path, {}, accepting=True).providers["bank"].accounts["main"]
    assert (dict(account.credentials), account.signer) == ({}, None)


async def test_a_renewed_token(dial: Any, psp: Mocked, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    provider = made(tmp_path, psp.origin, 'token = { file = "token", prefix = "Bearer " }')
    account = provider.accounts["main"]
    frozen = provider.freeze(ProviderRequest("POST", "/payments", {"amount": 1}), KEY)
    for text in ("first", "second"):
        token.write_text(text)
        assert (await dial(psp.origin, frozen, account=account)).complete
        assert psp.requests[-1].headers["authorization"] == f"Bearer {text}"
    token.unlink()
    with pytest.raises(ConfigError, match="its signer failed"):
        head(account, frozen)
    assert not any("first" in kept for kept in (repr(account), repr(provider)))


def test_a_token_that_nobody_can_renew(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nobody can renew a token in a variable"):
        made(tmp_path, "http://127.0.0.1:1", 'token = { env = "TOKEN" }')
    (tmp_path / "token").write_text("t")
    both = 'token = { file = "token" }, authorization = { env = "TOKEN" }'
    with pytest.raises(ConfigError, match="authorization is said twice"):
        made(tmp_path, "http://127.0.0.1:1", both)
