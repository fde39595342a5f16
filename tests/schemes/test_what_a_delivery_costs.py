"""What a delivery costs whose sender knows no secret: a look for each secret, never accounts times what he sends."""

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from costs.steps import steps
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fix_schemes import ADYEN, KINDS, NOW, PUBLIC, batch, by_adyen, by_key, notification, raw, standard_headers

from idem.errors import ConfigError, WebhookRefused
from idem.outbox.config import explain, load
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.providers import response
from idem.outbox.providers.schemes import ed25519
from idem.outbox.providers.schemes.deliveries import MOST_SIGNATURES
from idem.outbox.providers.schemes.standard import MOST_BY_KEY
from idem.outbox.providers.schemes.tries import MOST_SECRETS, MOST_TRIES, PUBLIC_KEY
from idem.reconciler.webhooks.delivery import verified

BASE = Path(__file__).with_name("what_a_delivery_costs_base.toml").read_text()
HMAC = 'scheme = "hmac-sha256"\nheader = "%s"\nkey = "/key"\n'
TOML = {
    "standard": 'key = "/key"\n',
    "ed25519": 'key = "/key"\n',
    "stripe": 'scheme = "stripe"\nkey = "/key"\n',
    "github": HMAC % "X-Hub-Signature-256" + 'prefix = "sha256="\n',
    "shopify": HMAC % "X-Shopify-Hmac-Sha256" + 'encoding = "base64"\n',
    "timed": HMAC % "X-Sig" + 'prefix = "v0="\nsigned = "v0:{timestamp}:{id}:{body}"\ntimestamp_header = "X-Time"\n'
             'id_header = "X-Id"\n',
    "square": 'scheme = "square"\nkey = "/key"\nurl = "https://hooks.shop.example/webhooks/{account}"\n',
    "gocardless": 'scheme = "gocardless"\nkey = "/key"\n',
    "adyen": 'scheme = "adyen"\nkey = "/merchantReference"\n',
}  # fmt: skip
"""Every scheme as it is written."""

GENUINE = {kind.name: kind for kind in KINDS}


def secret(scheme: str, number: int) -> str:
    """Another one for each number, of the scheme's kind."""
    seed = hashlib.sha256(b"%d" % number).digest()
    match scheme:
        case "standard":
            return "whsec_" + base64.b64encode(seed).decode()
        case "ed25519":
            key = Ed25519PrivateKey.from_private_bytes(seed).public_key()
            return "whpk_" + base64.b64encode(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()
        case "stripe":
            return "whsec_" + seed.hex()
        case _:
            return seed.hex()


def configured(tmp_path: Path, scheme: str, accounts: int, each: int = 1, *more: str) -> tuple[Path, dict[str, str]]:
    """A file in which every account has so many secrets; the last account has `more` too."""
    text, variables = BASE + TOML[scheme], {}
    for account in range(accounts):
        mine = [secret(scheme, account * each + number) for number in range(each)]
        mine += more if account == accounts - 1 else ()
        variables |= {f"S{account}_{number}": value for number, value in enumerate(mine)}
        envs = ", ".join(f'{{ env = "S{account}_{number}" }}' for number in range(len(mine)))
        text += f'[providers.bank.accounts.a{account}]\norigin = "https://bank.example"\n'
        text += f"[providers.bank.accounts.a{account}.webhook]\nsecrets = [{envs}]\n"
    file = tmp_path / f"{scheme}-{accounts}-{each}.toml"
    file.write_text(text)
    return file, variables


def known(tmp_path: Path, scheme: str, accounts: int, each: int = 1, *more: str) -> Catalogue:
    return load(*configured(tmp_path, scheme, accounts, each, *more))


Sent = tuple[list[tuple[bytes, bytes]], bytes]


def lines(scheme: str) -> Callable[[int], Sent]:
    """A delivery under a secret of nobody's, with so many more headers."""
    kind = GENUINE[scheme]
    return lambda n: ([*raw(kind.headers), *((b"x-%d" % each, b"1") for each in range(n))], kind.body)


def signatures(scheme: str, one: str) -> Callable[[int], Sent]:
    """So many signatures in one header."""
    if scheme == "stripe":
        return lambda n: ([(b"stripe-signature", f"t={int(NOW)}{(',v1=' + one) * n}".encode())], b"{}")
    return lambda n: (raw(standard_headers(" ".join([one] * n))), b"{}")


def forged(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "additionalData": {"hmacSignature": base64.b64encode(b"x" * 32).decode()}}


GROWING: dict[str, tuple[str, Callable[[int], Sent]]] = {
    **{f"{scheme}, headers": (scheme, lines(scheme)) for scheme in TOML},
    "stripe, v1": ("stripe", signatures("stripe", "a" * 64)),
    "standard, v1": ("standard", signatures("standard", "v1," + "a" * 43 + "=")),
    "standard, v1a": ("standard", signatures("standard", "v1a," + "A" * 86 + "==")),
    "ed25519, v1": ("ed25519", signatures("ed25519", "v1," + "a" * 43 + "=")),
    "ed25519, v1a": ("ed25519", signatures("ed25519", "v1a," + "A" * 86 + "==")),
    "adyen, items": ("adyen", lambda n: ([], batch(*[forged(notification())] * n))),
    "adyen, items with no signature": ("adyen", lambda n: ([], batch(*[notification()] * n))),
    "adyen, items of nothing": ("adyen", lambda n: ([], batch(*[{}] * n))),
    "adyen, others of nothing": ("adyen", lambda n: ([], batch(forged(notification()), *[{}] * n))),
}
"""What a sender can make more of."""


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each costly step was taken."""
    taken = Counter[str]()

    def counted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def step(*given: Any, **more: Any) -> Any:
            taken[name] += 1
            return real(*given, **more)

        monkeypatch.setattr(owner, name, step)

    counted(hmac, "digest")
    counted(ed25519, "verifies")
    counted(response, "read_event")
    return taken


def refused(catalogue: Catalogue, sent: Sent, account: str | None = None) -> str:
    with pytest.raises(WebhookRefused) as raised:
        verified(catalogue, "bank", account, *sent, NOW)
    return raised.value.reason


def test_the_list_has_every_scheme() -> None:
    assert set(TOML) | {"checkout", "modern treasury"} == set(GENUINE)


@pytest.mark.parametrize("name", GROWING)
def test_what_a_sender_makes_more_of_costs_the_same_for_many_accounts(tmp_path: Path, name: str) -> None:
    scheme, make = GROWING[name]
    catalogues = [known(tmp_path, scheme, accounts) for accounts in (2, 4, 8)]
    small, large = make(40), make(80)
    for catalogue in catalogues:
        refused(catalogue, small)
    more = [
        steps(lambda: verified(each, "bank", None, *large, NOW))  # noqa: B023
        - steps(lambda: verified(each, "bank", None, *small, NOW))  # noqa: B023
        for each in catalogues
    ]
    assert more[0] == more[1] == more[2], name


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("n", [1, MOST_BY_KEY, 4, MOST_SIGNATURES, 40, 160])
def test_each_secret_is_tried_once_and_the_body_is_read_once(
    tmp_path: Path, name: str, n: int, looks: Counter[str]
) -> None:
    scheme, make = GROWING[name]
    for accounts in (2, 4, 8):
        catalogue = known(tmp_path, scheme, accounts, 2)
        sent = make(n)
        looks.clear()
        refused(catalogue, sent)
        assert looks["digest"] in (0, 2 * accounts)
        assert looks["verifies"] <= MOST_BY_KEY * 2 * accounts
        assert looks["read_event"] <= 1
        looks.clear()
        refused(catalogue, sent, "a1")
        assert looks["digest"] in (0, 2) and looks["verifies"] <= MOST_BY_KEY * 2


def test_every_item_is_checked_for_the_account_whose_first_item_is_genuine(tmp_path: Path, looks: Counter[str]) -> None:
    for accounts in (2, 4, 8):
        catalogue = known(tmp_path, "adyen", accounts, 1, ADYEN)
        genuine = [by_adyen(notification(pspReference=str(number))) for number in range(30)]
        looks.clear()
        assert {each.account for each in verified(catalogue, "bank", None, [], batch(*genuine), NOW)} == {
            f"a{accounts - 1}"
        }
        assert looks["digest"] == accounts + 1 + 29 * 2
        looks.clear()
        assert refused(catalogue, ([], batch(genuine[0], forged(genuine[1]), *genuine[2:]))) == "signature"
        assert looks["digest"] == accounts + 1 + 2


def test_a_list_of_signatures_that_is_too_long_is_refused_before_any_is_tried(
    tmp_path: Path, looks: Counter[str]
) -> None:
    for name, most in [("stripe, v1", 10), ("standard, v1", 10), ("ed25519, v1a", 3), ("standard, v1a", 3)]:
        scheme, make = GROWING[name]
        catalogue = known(tmp_path, scheme, 2)
        assert refused(catalogue, make(most)) == "signature"
        looks.clear()
        assert refused(catalogue, make(most + 1)) == "malformed"
        assert not looks


def test_the_checks_of_one_delivery_have_a_most(tmp_path: Path, looks: Counter[str]) -> None:
    """100 secrets, or 20 public keys; with more, the path has to name the account."""
    sent = GROWING["ed25519, v1a"][1](MOST_BY_KEY)
    assert refused(known(tmp_path, "ed25519", 10, MOST_TRIES // PUBLIC_KEY // 10), sent) == "signature"
    assert looks["verifies"] == MOST_BY_KEY * MOST_TRIES // PUBLIC_KEY == 60
    looks.clear()
    for scheme, accounts, each in (("ed25519", 50, 2), ("ed25519", 7, 3), ("standard", 101, 1), ("adyen", 20, 6)):
        many = known(tmp_path, scheme, accounts, each)
        body = GROWING["adyen, items"][1](1) if scheme == "adyen" else sent
        with pytest.raises(WebhookRefused, match="/webhooks/bank/ followed by the account's name"):
            verified(many, "bank", None, *body, NOW)
        assert not looks
        assert refused(many, body, "a1") == "signature"
        looks.clear()
    many = known(tmp_path, "ed25519", 50, 2, PUBLIC)
    assert verified(many, "bank", "a49", raw(by_key(b"{}")), b"{}", NOW)[0].event_id == "evt_1"


def test_an_address_that_takes_no_event_is_said_at_the_start(tmp_path: Path) -> None:
    def said(accounts: int) -> list[tuple[str, str]]:
        found = explain(*configured(tmp_path, "ed25519", accounts))
        return [(each.level, each.do) for each in found if "takes no event" in each.what]

    assert said(20) == []
    assert said(21) == [("warning", "Have the provider send the events of each account to /webhooks/bank/<account>")]


def test_one_account_has_few_secrets(tmp_path: Path) -> None:
    known(tmp_path, "standard", 1, MOST_SECRETS)
    with pytest.raises(ConfigError, match="10"):
        known(tmp_path, "standard", 1, MOST_SECRETS + 1)
