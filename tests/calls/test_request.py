"""What goes on the wire: the frozen bytes, the credentials, and each name once."""

import re
import ssl
from typing import Any

import pytest
from calls.conftest import Resolving, answers, does, raising
from hypothesis import given
from hypothesis import strategies as st

from idem.errors import ConfigError
from idem.outbox.calls.name_resolution import Resolver
from idem.outbox.calls.request_head import check_account, head, on_the_wire, origin
from idem.outbox.domain.contract import Account, FrozenRequest

ACCOUNT = Account("main", "https://api.test", {"Authorization": "Bearer sk_secret"})


def post(headers: dict[str, str] | None = None, path: str = "/payments", method: str = "POST") -> FrozenRequest:
    return FrozenRequest(method, path, headers or {}, b"{}")


async def test_the_request_is_the_frozen_one_byte_for_byte(dial: Any, answering: Any) -> None:
    """IB-084: exactly one key header, always the same bytes; the target is not tidied up."""
    request = FrozenRequest(
        "POST",
        "/a/../b%2f%C3%A9?x=1&y=a+b%20'c\"d|e",
        {"Content-Type": "application/json", "Idempotency-Key": "k-1", "X-Odd": 'a "b"\t~'},
        b'{"amount": 100}',
    )
    for _ in range(2):
        assert (await dial(answering.origin, request)).complete
    assert answering.full[0] == answering.full[1]
    first, *rest = answering.full[0].split(b"\r\n")
    assert first == b"POST /a/../b%2f%C3%A9?x=1&y=a+b%20'c\"d|e HTTP/1.1"
    assert sorted(rest[:-2]) == sorted(
        [
            b"Host: 127.0.0.1:%d" % answering.port,
            b"Content-Length: 15",
            b"Content-Type: application/json",
            b"Idempotency-Key: k-1",
            b'X-Odd: a "b"\t~',
            b"Authorization: Bearer sk_secret",
            b"User-Agent: idem",
            b"Accept-Encoding: identity",
        ]
    )
    assert rest[-2:] == [b"", b'{"amount": 100}']


async def test_no_cookie_of_one_row_gets_into_the_next(dial: Any, serve: Any) -> None:
    sets_cookies = does(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n")

    server = await serve(sets_cookies)
    for _ in range(2):
        await dial(server.origin)
    assert b"ookie" not in server.full[1]


async def test_the_name_of_the_origin_is_in_host_sni_and_certificate_check(
    dial: Any, serve: Any, certificate: Any
) -> None:
    """The call goes to a pinned address, and TLS is still that of the name."""
    names: list[str | None] = []
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(certificate)
    ours.sni_callback = lambda sock, name, context: names.append(name)
    server = await serve(answers, tls=ours)
    trusting = ssl.create_default_context(cafile=str(certificate))
    fixed = Resolver(lambda host: ["127.0.0.1"])
    result = await dial(f"https://api.test:{server.port}", tls=trusting, resolver=fixed)
    assert result.complete
    assert names == ["api.test"]
    assert b"\r\nHost: api.test:%d\r\n" % server.port in server.full[0]
    other = await dial(f"https://other.test:{server.port}", tls=trusting, resolver=fixed)
    assert other.seen.note.startswith("no connection: Hostname mismatch")
    assert len(server.full) == 1


@pytest.mark.parametrize(
    "request_",
    [
        *(post(method=method) for method in ("CONNECT", "post")),
        *(post(path=path) for path in ("payments", "/a b", "/a\r\nX: y", "/é", "/a#b")),
        *(post({"X-A": value}) for value in ("sk_secret…", "sk_secret\r\nX-B: 1", " sk_secret", "sk_secret\x00")),
        *(post({name: "1"}) for name in ("X A", "", "Host", "Transfer-Encoding", "Expect")),
        post({"content-length": "99"}),
        post({"Accept-Encoding": "gzip"}),
        post({"authorization": "sk_secret"}),
        post({"Idempotency-Key": "1", "idempotency-key": "2"}),
    ],
    ids=repr,
)
async def test_what_cannot_be_sent_as_it_is_is_refused_before_anything_happens(dial: Any, request_: Any) -> None:
    """IB-081, IB-084: named, and without quoting a value."""
    with pytest.raises(ConfigError) as refused:
        await dial("https://api.test", request_, resolver=Resolving(raising(AssertionError)))
    assert "sk_secret" not in str(refused.value)


@given(name=st.text(max_size=8), value=st.text(max_size=8))
def test_whatever_is_accepted_can_be_sent(name: str, value: str) -> None:
    try:
        lines = head(ACCOUNT, post({name: value}))
    except ConfigError:
        return
    names = [line[0].lower() for line in lines]
    assert len(names) == len(set(names))
    for line in lines:
        assert re.fullmatch(r"[!-~]+", line[0])
        assert re.fullmatch(r"([!-~]([ \t!-~]*[!-~])?)?", line[1])


def test_what_idem_sets_itself_may_be_frozen_with_the_same_value() -> None:
    lines = head(ACCOUNT, post({"Content-Length": "2", "accept-encoding": "identity", "User-Agent": "shop/1"}))
    assert [name for name, _ in lines] == ["Host", "User-Agent", "Authorization", "Accept-Encoding", "Content-Length"]


@pytest.mark.parametrize(
    "where",
    [
        "api.test",
        "ftp://api.test",
        "https://",
        "https://user:sk_secret@api.test",
        "https://api.test/v1",
        "https://api.test?x=1",
        "https://api.test?",
        "https://api.test:99999",
        "https://api.test:0",
        "https://[::",
    ],
)
def test_an_origin_that_is_more_or_less_than_one_is_refused(where: str) -> None:
    with pytest.raises(ConfigError, match="account 'main': origin") as refused:
        check_account(Account("main", where))
    assert "sk_secret" not in str(refused.value)


def test_a_credential_with_a_typographic_sign_names_its_setting() -> None:
    """IB-081."""
    with pytest.raises(ConfigError, match=r"account 'main': credentials: the value of 'Authorization'"):
        check_account(Account("main", "https://api.test", {"Authorization": "Bearer sk_secret…"}))


@pytest.mark.parametrize(
    ("where", "host", "port", "authority"),
    [
        ("https://api.test", "api.test", 443, "api.test"),
        ("https://api.test:8443", "api.test", 8443, "api.test:8443"),
        ("https://bücher.test", "xn--bcher-kva.test", 443, "xn--bcher-kva.test"),
        ("https://[2001:db8::1]:8443", "2001:db8::1", 8443, "[2001:db8::1]:8443"),
        ("http://192.0.2.1", "192.0.2.1", 80, "192.0.2.1"),
    ],
)
def test_host_and_tls_name_for_every_form_of_origin(where: str, host: str, port: int, authority: str) -> None:
    account = Account("main", where)
    known = origin(account)
    assert (known.host, known.port) == (host, port)
    assert b"\r\nHost: %s\r\n" % authority.encode() in on_the_wire(post(), head(account, post())).replace(
        b"HTTP/1.1\r\n", b"\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("POST", b"{}", "2"), ("POST", b"", "0"), ("PUT", b"", "0"), ("DELETE", b"", None), ("DELETE", b"{}", "2"),
     ("GET", b"", None)],
)  # fmt: skip
def test_the_length_is_said_of_every_body_and_of_none_where_one_is_expected(
    method: str, body: bytes, length: str | None
) -> None:
    assert dict(head(ACCOUNT, FrozenRequest(method, "/", {}, body))).get("Content-Length") == length


def test_a_connection_that_is_not_kept_is_said_to_be_closed() -> None:
    assert ("Connection", "close") in head(ACCOUNT, post(), keep=False)
