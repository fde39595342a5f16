"""Public keys of Standard Webhooks beside its secrets."""

import base64
import hashlib
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from fix_schemes import NOW, OTHER_STANDARD, PRIVATE, PUBLIC, STANDARD, by_key, by_standard, check, standard_headers

from idem.outbox.providers.schemes import ed25519
from idem.outbox.providers.schemes.deliveries import MOST_SIGNATURES
from idem.outbox.providers.schemes.ed25519 import PublicKey
from idem.outbox.providers.schemes.standard import MOST_BY_KEY, StandardWebhooks

SCHEME = StandardWebhooks()
BODY = b'{"type": "payment.succeeded"}'
STRANGER = Ed25519PrivateKey.from_private_bytes(b"x" * 32)


def says(headers: dict[str, str], *secrets: str, body: bytes = BODY) -> str | None:
    return check(SCHEME, body, headers, *secrets)


def test_rfc_8032_vector() -> None:
    """Test 2 of section 7.1, an independent word on what a signature is."""
    key = ed25519.public_key(bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"))
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert ed25519.verifies(key, signature, b"\x72")
    assert not ed25519.verifies(key, signature, b"\x73")
    assert not ed25519.verifies(key, signature[:-1], b"\x72")
    assert not ed25519.verifies(key, b"", b"\x72")


def test_what_the_owner_of_the_key_signs_is_taken() -> None:
    assert says(by_key(BODY), PUBLIC) == "evt_1"
    assert says(by_key(BODY), PUBLIC.rstrip("=")) == "evt_1"
    assert says(by_key(BODY), PUBLIC, body=BODY + b" ") == "! signature"
    assert says(by_key(BODY, STRANGER), PUBLIC) == "! signature"
    assert says(by_key(BODY, at=NOW - 301), PUBLIC) == "! timestamp"


def test_both_kinds_side_by_side() -> None:
    """A provider that goes over from one to the other signs with both for a while."""
    ours, theirs = by_standard(BODY)["webhook-signature"], by_key(BODY)["webhook-signature"]
    for both in (f"{ours} {theirs}", f"{theirs} {ours}"):
        for secrets in ((STANDARD, PUBLIC), (PUBLIC, STANDARD), (STANDARD,), (PUBLIC,)):
            assert says(standard_headers(both), *secrets) == "evt_1"
        assert says(standard_headers(both), OTHER_STANDARD) == "! signature"


def test_a_list_while_the_key_is_changed() -> None:
    both = " ".join(by_key(BODY, key)["webhook-signature"] for key in (STRANGER, PRIVATE))
    assert says(standard_headers(both), PUBLIC) == "evt_1"


def test_a_public_key_is_never_the_key_of_an_hmac() -> None:
    """Everybody knows it, so everybody could sign with it."""
    raw = PRIVATE.public_key().public_bytes_raw()
    signed = b"evt_1.%d." % NOW + BODY
    import hmac

    forged = base64.b64encode(hmac.digest(raw, signed, hashlib.sha256)).decode()
    for version in ("v1", "v1a"):
        assert says(standard_headers(f"{version},{forged}"), PUBLIC) == "! signature"
    assert isinstance(SCHEME.parse_secret(PUBLIC), PublicKey)
    assert not isinstance(SCHEME.parse_secret(STANDARD), PublicKey)


def test_a_signature_under_the_other_version_fits_nothing() -> None:
    made = by_key(BODY)["webhook-signature"].removeprefix("v1a,")
    assert says(standard_headers(f"v1,{made}"), PUBLIC) == "! signature"
    assert says(standard_headers(f"v2a,{made}"), PUBLIC) == "! signature"
    made = by_standard(BODY)["webhook-signature"].removeprefix("v1,")
    assert says(standard_headers(f"v1a,{made}"), STANDARD, PUBLIC) == "! signature"


@pytest.mark.parametrize("made", ["", "x", "====", "A" * 86 + "==", "A" * 88, "ü", "A" * 5000, "-_" * 43])
def test_what_is_no_signature_at_all(made: str) -> None:
    assert says(standard_headers(f"v1a,{made}"), PUBLIC) == "! signature"


def test_a_list_without_end_is_refused_before_anything_is_verified() -> None:
    good = by_key(BODY)["webhook-signature"]
    others = ["v1,AAAA"] * (MOST_SIGNATURES - MOST_BY_KEY)
    assert says(standard_headers(" ".join([*others, *[good] * MOST_BY_KEY])), PUBLIC) == "evt_1"
    assert says(standard_headers(" ".join(["v1,AAAA", *others, *[good] * MOST_BY_KEY])), PUBLIC) == "! malformed"
    assert says(standard_headers(" ".join([good] * (MOST_BY_KEY + 1))), PUBLIC) == "! malformed"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("whsk_" + base64.b64encode(b"p" * 32).decode(), "private key, which the provider keeps"),
        ("whpk_" + base64.b64encode(b"p" * 31).decode(), "31 bytes"),
        ("whpk_", "0 bytes"),
        ("whpk_not base64!", "not base64"),
        ("whpk_" + base64.b64encode(b"\0" * 32).decode(), "no real one"),
    ],
)
def test_ib_101_a_key_of_another_kind(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SCHEME.parse_secret(text)


@pytest.mark.parametrize("weak", sorted(ed25519.FORGEABLE))
@pytest.mark.parametrize("sign", [0, 0x80])
def test_a_key_under_which_anybody_can_sign_is_refused(weak: bytes, sign: int) -> None:
    with pytest.raises(ValueError, match="anybody can sign"):
        ed25519.public_key(weak[:-1] + bytes([weak[-1] | sign]))


def test_why_such_a_key_is_refused() -> None:
    """Under zeros, a signature that nobody made is good for one message in a few."""
    forged = b"\x01" + b"\0" * 31 + b"\0" * 32
    taken = 0
    for number in range(64):
        try:
            Ed25519PublicKey.from_public_bytes(b"\0" * 32).verify(forged, b"%d" % number)
            taken += 1
        except Exception:
            continue
    assert taken


@pytest.mark.quick
@pytest.mark.process
def test_cryptography_is_loaded_where_a_public_key_is_used_and_only_there() -> None:
    code = (
        "import sys, idem.reconciler.webhooks, idem.outbox.config\n"
        "from idem.outbox.providers.schemes.standard import StandardWebhooks\n"
        "assert 'cryptography' not in sys.modules\n"
        "sys.modules['cryptography'] = None\n"
        f"StandardWebhooks().parse_secret({STANDARD!r})\n"
        f"try: StandardWebhooks().parse_secret({PUBLIC!r})\n"
        "except ValueError as error: assert '.[daemon]' in str(error)\n"
        "else: raise SystemExit(2)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
