"""The generic scheme: published examples, templates, and ids."""

import hashlib
from dataclasses import replace

import pytest
from fix_schemes import CHECKOUT, GITHUB, NOW, PLAIN, SHOPIFY, TIMED, TREASURY, check, in_base64, in_hex

from idem.outbox.providers.schemes.hmac_sha256 import HmacSha256, parse_template

BODY = b'{"id":"evt_1"}'
ALONE = replace(GITHUB, id_header=None)


def test_github_s_documented_example() -> None:
    """https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries"""
    headers = {"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}
    body, secret = b"Hello, World!", "It's a Secret to Everybody"
    digest = "sha256:" + hashlib.sha256(body).hexdigest()
    assert check(ALONE, body, headers, secret) == digest
    assert check(GITHUB, body, headers | {"X-GitHub-Delivery": "72d3162e"}, secret) == "72d3162e"
    assert check(ALONE, body + b"\n", headers, secret) == "! signature"


def test_slack_s_documented_example() -> None:
    """https://docs.slack.dev/authentication/verifying-requests-from-slack"""
    scheme = HmacSha256(
        header=b"x-slack-signature",
        prefix=b"v0=",
        signed=parse_template("v0:{timestamp}:{body}"),
        timestamp_header=b"x-slack-request-timestamp",
    )
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    assert str(check(scheme, body, headers, secret, now=1531420618.0)).startswith("sha256:")
    assert check(scheme, body, headers, secret, now=1531420618.0 + 301) == "! timestamp"


@pytest.mark.parametrize(
    ("scheme", "headers"),
    [
        (CHECKOUT, {"Cko-Signature": in_hex(PLAIN, BODY)}),
        (TREASURY, {"X-Signature": in_hex(PLAIN, BODY)}),
        (SHOPIFY, {"X-Shopify-Hmac-Sha256": in_base64(PLAIN, BODY), "X-Shopify-Event-Id": "98880550"}),
    ],
)
def test_the_documented_presets(scheme: HmacSha256, headers: dict[str, str]) -> None:
    assert not str(check(scheme, BODY, headers, PLAIN)).startswith("! ")
    assert check(scheme, BODY, headers, PLAIN + "x") == "! signature"


def test_hex_has_no_case_and_base64_has() -> None:
    signature = in_hex(PLAIN, BODY)
    for written in (signature, signature.upper()):
        assert not str(check(CHECKOUT, BODY, {"cko-signature": written}, PLAIN)).startswith("! ")
    headers = {"x-shopify-hmac-sha256": in_base64(PLAIN, BODY).swapcase(), "x-shopify-event-id": "1"}
    assert check(SHOPIFY, BODY, headers, PLAIN) == "! signature"


@pytest.mark.parametrize(
    "wrong", ["{}", "sha1={}", "sha256 {}", "SHA256={}", "sha256=sha256={}", "sha256={} ", "sha256="]
)
def test_the_prefix_is_there_once_as_it_is_written(wrong: str) -> None:
    headers = {"x-hub-signature-256": wrong.format(in_hex(PLAIN, BODY))}
    assert str(check(ALONE, BODY, headers, PLAIN)) in ("! malformed", "! signature")


def test_without_an_id_the_body_is_what_tells_events_apart() -> None:
    """The same delivery again is the same event, whatever its headers say; another body is another one."""
    first, other = (check(TREASURY, body, {"x-signature": in_hex(PLAIN, body)}, PLAIN) for body in (BODY, BODY + b" "))
    again = check(TREASURY, BODY, {"x-signature": in_hex(PLAIN, BODY).upper(), "x-id": "new"}, PLAIN)
    assert first == again != other


def test_an_id_that_is_no_text() -> None:
    headers = [(b"x-hub-signature-256", b"sha256=" + in_hex(PLAIN, BODY).encode()), (b"x-github-delivery", b"\xff")]
    assert check(GITHUB, BODY, headers, PLAIN) == "! malformed"
    assert check(GITHUB, BODY, headers[:1], PLAIN) == "! missing"


def timed(stamp: str, id: str = "evt_1") -> dict[str, str]:
    return {"x-sig": "v0=" + in_hex(PLAIN, f"v0:{stamp}:{id}:".encode() + BODY), "x-time": stamp, "x-id": id}


@pytest.mark.parametrize("stamp", ["123abc", "1e9", "-1", " {}", "{} ", "{}000", "1" * 20, "{}.0", "0{}", "+{}", ""])
def test_ib_108_only_whole_seconds_are_a_time_stamp(stamp: str) -> None:
    assert check(TIMED, BODY, timed(stamp.format(int(NOW))), PLAIN) in ("! timestamp", "! missing")


def test_time_and_id_are_part_of_what_is_signed() -> None:
    good = timed(str(int(NOW)))
    assert check(TIMED, BODY, good, PLAIN) == "evt_1"
    assert check(TIMED, BODY, good | {"x-time": str(int(NOW) + 1)}, PLAIN) == "! signature"
    assert check(TIMED, BODY, good | {"x-id": "evt_2"}, PLAIN) == "! signature"


def test_the_address_is_part_of_it_where_the_template_says_so() -> None:
    scheme = HmacSha256(header=b"x-sig", signed=parse_template("{url}{body}"))
    headers = {"x-sig": in_hex(PLAIN, b"https://a.example/x" + BODY)}
    assert not str(check(scheme, BODY, headers, PLAIN, url="https://a.example/x")).startswith("! ")
    assert check(scheme, BODY, headers, PLAIN, url="https://a.example/y") == "! signature"
    assert check(scheme, BODY, headers, PLAIN) == "! not_configured"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "holds {body} once"),
        ("{timestamp}", "holds {body} once"),
        ("{body}{body}", "holds {body} once"),
        ("{id}{id}{body}", "stands in the signed string once"),
        ("{boddy}", "there is no {boddy}"),
        ("{body}}", "brace stands alone"),
        ("{ body }", "brace stands alone"),
    ],
)
def test_a_template_that_says_nothing(written: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("{", r"\{")):
        parse_template(written)
