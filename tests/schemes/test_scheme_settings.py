"""`webhook` of each scheme in idem.toml: what it builds, and every mistake explained at the start."""

from pathlib import Path

import pytest
from fix_schemes import ADYEN, OPERATION, OTHER_PLAIN, PLAIN, PUBLIC, STANDARD, STRIPE

from idem.errors import ConfigError
from idem.outbox.config import explain, load
from idem.outbox.domain.contract import EventRule
from idem.outbox.domain.webhook import Webhook, WebhookReply
from idem.outbox.providers.contract_checks import Finding
from idem.outbox.providers.schemes.hmac_sha256 import HmacSha256, SignaturePlace
from idem.outbox.providers.schemes.standard import StandardWebhooks
from idem.outbox.providers.schemes.stripe import StripeSignatures

BASE = """
environment = "test"
[providers.bank]
key = { carrier = "header", name = "idempotency-key", replay = "stored", retention = "24h" }
errors = { shape = "/error/code" }
object = { reference = "/id", status = "/status" }
outcome = [{ says = "final", when = { "/status" = "succeeded" } }]
[providers.bank.accounts.main]
origin = "https://bank.example"
[providers.bank.webhook]
secrets = [{ env = "HOOK" }]
"""
URL = "https://hooks.shop.example/webhooks/bank"
HMAC = 'scheme = "hmac-sha256"\nkey = "/data/key"\nheader = "X-Signature"\n'
SQUARE = f'scheme = "square"\nkey = "/data/key"\nurl = "{URL}"\n'
ADYEN_TOML = 'scheme = "adyen"\nkey = "/merchantReference"\nreference = "/pspReference"\n'


def written(tmp_path: Path, webhook: str, base: str = BASE, more: str = "") -> Path:
    file = tmp_path / "idem.toml"
    file.write_text(base + webhook + more + OPERATION)
    return file


def findings(tmp_path: Path, webhook: str, secret: str = PLAIN, **parts: str) -> list[Finding]:
    """All but what is said about the age of the facts."""
    found = explain(written(tmp_path, webhook, **parts), {"HOOK": secret, "NEXT": OTHER_PLAIN})
    return [each for each in found if not each.where.endswith(".verified")]


def errors(tmp_path: Path, webhook: str, secret: str = PLAIN, **parts: str) -> list[Finding]:
    return [each for each in findings(tmp_path, webhook, secret, **parts) if each.level == "error"]


def built(tmp_path: Path, webhook: str, secret: str = PLAIN, **parts: str) -> Webhook:
    found = load(written(tmp_path, webhook, **parts), {"HOOK": secret, "NEXT": OTHER_PLAIN}).providers["bank"].webhook
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("webhook", "secret", "key"),
    [
        ('key = "/data/key"\n', STANDARD, b"a" * 32),
        ('scheme = "stripe"\nkey = "/data/object/metadata/key"\n', STRIPE, STRIPE.encode()),
        (HMAC, PLAIN, PLAIN.encode()),
        (SQUARE, PLAIN, PLAIN.encode()),
        (ADYEN_TOML, ADYEN, bytes.fromhex(ADYEN)),
        ('scheme = "gocardless"\nkey = "/metadata/key"\n', PLAIN, PLAIN.encode()),
    ],
)
def test_every_scheme_without_a_word_of_complaint(tmp_path: Path, webhook: str, secret: str, key: bytes) -> None:
    assert findings(tmp_path, webhook, secret) == []
    found = load(written(tmp_path, webhook), {"HOOK": secret})
    assert found.providers["bank"].webhook is not None and found.providers["bank"].webhook.secrets == {"main": (key,)}
    assert secret not in repr(found) + repr(found.providers)


def test_both_kinds_of_standard_webhooks_side_by_side(tmp_path: Path) -> None:
    base = BASE.replace('{ env = "HOOK" }', '{ env = "HOOK" }, { env = "PUBLIC" }')
    found = load(written(tmp_path, 'key = "/data/key"\n', base), {"HOOK": STANDARD, "PUBLIC": PUBLIC})
    webhook = found.providers["bank"].webhook
    assert webhook is not None and len(webhook.secrets["main"]) == 2


def test_the_settings_of_a_scheme_arrive(tmp_path: Path) -> None:
    assert built(tmp_path, 'key = "/k"\n', STANDARD).scheme == StandardWebhooks()
    assert built(tmp_path, 'scheme = "stripe"\nkey = "/k"\n', STRIPE).scheme == StripeSignatures()
    more = (
        'prefix = "v0="\nencoding = "base64"\nsigned = "v0:{timestamp}:{id}:{body}"\n'
        'timestamp_header = "X-Time"\nid_header = "X-Id"\n'
    )
    assert built(tmp_path, HMAC + more).scheme == HmacSha256(
        header=b"x-signature",
        prefix=b"v0=",
        encoding="base64",
        signed=(b"v0:", SignaturePlace.TIMESTAMP, b":", SignaturePlace.ID, b":", SignaturePlace.BODY),
        timestamp_header=b"x-time",
        id_header=b"x-id",
    )


def test_what_is_said_about_events_arrives_in_the_contract(tmp_path: Path) -> None:
    def rule(more: str) -> EventRule:
        file = written(
            tmp_path, HMAC + more, BASE.replace("[providers.bank.accounts", LOOKUP + "[providers.bank.accounts")
        )
        return load(file, {"HOOK": PLAIN}).providers["bank"].contract.event_rule

    assert rule("") == EventRule()
    assert rule('fetch = true\nredelivery = "2d"\n') == EventRule(True, 172800.0)
    assert rule('unmatched = "ignore"\n') == EventRule(horizon=None)


LOOKUP = 'lookup = { horizon = "1m", by_id = { path = "/payments/{idem.reference}" } }\n'


def test_replies(tmp_path: Path) -> None:
    assert built(tmp_path, HMAC).reply == WebhookReply()
    assert built(tmp_path, ADYEN_TOML, ADYEN).reply == WebhookReply(200, b"[accepted]")
    assert built(tmp_path, ADYEN_TOML + 'reply = "ok"\n', ADYEN).reply == WebhookReply(200, b"ok")


SECOND = '[providers.bank.accounts.second]\norigin = "https://bank.example"\n'
TWO = BASE.replace('secrets = [{ env = "HOOK" }]\n', "").replace(
    "[providers.bank.webhook]", SECOND + "[providers.bank.webhook]"
)
THEIR = """
[providers.bank.accounts.main.webhook]
secrets = [{ env = "HOOK" }]
[providers.bank.accounts.second.webhook]
secrets = [{ env = "NEXT" }]
"""


def two(tmp_path: Path, webhook: str, their: str = THEIR) -> Path:
    operation = OPERATION.replace('provider = "bank"', 'provider = "bank"\naccount = "main"')
    file = tmp_path / "idem.toml"
    file.write_text(TWO + webhook + their + operation)
    return file


def test_the_address_of_each_account(tmp_path: Path) -> None:
    env = {"HOOK": PLAIN, "NEXT": OTHER_PLAIN}
    webhook = load(two(tmp_path, SQUARE.replace(URL, URL + "/{account}")), env).providers["bank"].webhook
    assert webhook is not None and webhook.urls == {"main": f"{URL}/main", "second": f"{URL}/second"}

    their = THEIR + 'url = "https://other.example/x"\n'
    webhook = load(two(tmp_path, SQUARE, their), env).providers["bank"].webhook
    assert webhook is not None and webhook.urls == {"main": URL, "second": "https://other.example/x"}


def test_square_without_an_address_is_an_error(tmp_path: Path) -> None:
    (error,) = errors(tmp_path, 'scheme = "square"\nkey = "/data/key"\n')
    assert error.where == "providers.bank.webhook.url"
    assert "for main" in error.what
    own = THEIR.replace('"HOOK" }]', f'"HOOK" }}]\nurl = "{URL}"')
    with pytest.raises(ConfigError, match="what it is for second"):
        load(two(tmp_path, 'scheme = "square"\nkey = "/data/key"\n', own), {"HOOK": PLAIN, "NEXT": OTHER_PLAIN})


@pytest.mark.parametrize("webhook", [HMAC, SQUARE, 'scheme = "gocardless"\nkey = "/k"\n'])
def test_hazard_75_two_accounts_with_one_secret_are_refused(tmp_path: Path, webhook: str) -> None:
    with pytest.raises(ConfigError, match=r"it is the secret of providers\.bank\.accounts\.main too") as raised:
        load(two(tmp_path, webhook), {"HOOK": PLAIN, "NEXT": PLAIN})
    assert PLAIN not in str(raised.value)
    assert load(two(tmp_path, webhook), {"HOOK": PLAIN, "NEXT": OTHER_PLAIN}).providers


def test_hazard_75_one_text_under_two_schemes_is_one_secret(tmp_path: Path) -> None:
    """Standard Webhooks and Stripe make different keys of `whsec_…`, and whoever has the text has both."""
    other = """
[providers.shop]
accounts.other = { origin = "https://shop.example" }
webhook = { scheme = "stripe", key = "/k", secrets = [{ env = "HOOK" }] }
object = { reference = "/id" }
outcome = [{ says = "final", when = { "/status" = "succeeded" } }]
lookup = { horizon = "1m", by_key = { path = "/payments/{idem.key}" } }
"""
    with pytest.raises(ConfigError, match="it is the secret of"):
        load(written(tmp_path, 'key = "/data/key"\n', more=other), {"HOOK": STANDARD})


@pytest.mark.parametrize(
    ("webhook", "secret"),
    [
        ('key = "/data/key"\n', PLAIN),
        ('scheme = "stripe"\nkey = "/k"\n', "sk_live_0123456789abcdef"),
        (HMAC + 'prefix = "sha256="\n', "sha256=0123456789abcdef"),
        (SQUARE, "EAAAl3ikZIe35J7zqjpXkLl4sEwJ"),
        (ADYEN_TOML, "no hex digits at all"),
        ('scheme = "gocardless"\nkey = "/k"\n', "live_Y4xUyKkPvs4MhUP6ArnLQ"),
    ],
)
def test_ib_101_a_secret_of_another_kind_stops_the_start(tmp_path: Path, webhook: str, secret: str) -> None:
    with pytest.raises(ConfigError, match=r"providers\.bank\.webhook\.secrets\.0") as raised:
        built(tmp_path, webhook, secret)
    assert secret not in str(raised.value)
    assert all(secret not in str(each) for each in findings(tmp_path, webhook, secret))


@pytest.mark.parametrize("scheme", ["stripe", "square", "adyen", "gocardless", "hmac-sha256", "standard"])
def test_ib_102_no_secret_is_said_at_the_start(tmp_path: Path, scheme: str) -> None:
    base = BASE.replace('secrets = [{ env = "HOOK" }]\n', "")
    more = {"square": f'url = "{URL}"\n', "hmac-sha256": 'header = "X-S"\n'}.get(scheme, "")
    found = findings(tmp_path, f'scheme = "{scheme}"\nkey = "/merchantReference"\n{more}', base=base)
    assert "every event of that account is refused" in " ".join(each.what for each in found)


@pytest.mark.parametrize(
    ("webhook", "where", "said"),
    [
        (HMAC.replace('header = "X-Signature"\n', ""), "header", "nothing says where the signature is"),
        (HMAC + 'signed = "{timestamp}.{body}"\n', "timestamp_header", "nothing says where it is"),
        (HMAC + 'timestamp_header = "X-Time"\n', "signed", "the time is not signed"),
        (HMAC + 'signed = "{id}.{body}"\n', "id_header", "nothing says where it is"),
        (HMAC + 'signed = "{url}{body}"\n', "url", "signs the endpoint's address"),
        (HMAC + 'signed = "{bodi}"\n', "signed", "there is no {bodi}"),
        (HMAC.replace("X-Signature", "X Sig"), "header", "not the name of a header"),
        (HMAC + 'encoding = "hexx"\n', "encoding", "must be one of"),
        (HMAC + 'redelivery = "91d"\n', "redelivery", "one is known again for 90d only"),
        (HMAC + 'redelivery = "90d"\n', "redelivery", "by nothing else a delivery that somebody recorded"),
        (HMAC + 'events = "/list"\n', "event_id", "nothing tells them apart"),
        (HMAC + 'event_path = "/item"\n', "event_path", "does nothing without `events`"),
        (HMAC + "event_id = []\n", "event_id", "an empty list"),
        (HMAC + 'event_id = ["id"]\n', "event_id", "not a JSON pointer"),
        (HMAC + "fetch = true\n", "fetch", "there is no look-up"),
        (HMAC + 'when = { "/live" = [] }\n', "when", "a condition is"),
        (HMAC + 'unmatched = "drop"\n', "unmatched", "must be one of"),
        (HMAC + "reply = { status = 404 }\n", "reply", "string"),
        (SQUARE.replace("https://", ""), "url", "is not an address"),
        (SQUARE.replace(URL, "https://höoks.example/"), "url", "is not an address"),
        (SQUARE + 'header = "X-Sig"\n', "header", "does nothing here"),
        (SQUARE + 'encoding = "hex"\n', "encoding", "does nothing here"),
        (ADYEN_TOML.replace("/merchantReference", "/additionalData/metadata.key"), "key", "Adyen does not sign"),
        (ADYEN_TOML.replace("/pspReference", "/paymentMethod"), "reference", "Adyen does not sign"),
        (ADYEN_TOML + 'event_id = "/eventDate"\n', "event_id", "Adyen does not sign /eventDate"),
        (ADYEN_TOML + 'event_path = "/additionalData"\n', "key", "Adyen does not sign"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, webhook: str, where: str, said: str) -> None:
    found = errors(tmp_path, webhook, ADYEN)
    assert f"providers.bank.webhook.{where}" in [each.where.removesuffix(".0") for each in found]
    assert said in " ".join(each.what for each in found)
    assert all(each.do for each in found)


TAG = 'deployment_tag = { at = "/metadata/d", key_at = "/metadata/k" }\n'
TAGGED = BASE.replace("[providers.bank.accounts", TAG + "[providers.bank.accounts")


def test_the_tag_is_no_signed_place_of_an_adyen_event(tmp_path: Path) -> None:
    webhook = ADYEN_TOML.replace('key = "/merchantReference"\n', "")
    assert "providers.bank.webhook.key" in [each.where for each in errors(tmp_path, webhook, ADYEN, base=TAGGED)]
    assert errors(tmp_path, ADYEN_TOML, ADYEN, base=TAGGED) == []


def test_a_key_beside_the_tag_is_a_key(tmp_path: Path) -> None:
    """Then an event can settle a call that broke, and nothing warns."""
    assert findings(tmp_path, 'scheme = "stripe"\n', STRIPE, base=TAGGED) == []
    found = load(written(tmp_path, 'scheme = "stripe"\n', TAGGED), {"HOOK": STRIPE})
    assert found.providers["bank"].contract.events_settle


def test_an_id_that_is_not_signed_is_said(tmp_path: Path) -> None:
    """Whoever has recorded a delivery could send it again under another id."""
    (warning,) = findings(tmp_path, HMAC + 'id_header = "X-GitHub-Delivery"\n')
    assert (warning.level, warning.where) == ("warning", "providers.bank.webhook.id_header")
    assert findings(tmp_path, HMAC + 'id_header = "X-GitHub-Delivery"\nevent_id = "/id"\n') == []
    assert findings(tmp_path, HMAC + 'signed = "{id}.{body}"\nid_header = "X-Id"\n') == []


def test_events_are_remembered_longer_than_they_come_again(tmp_path: Path) -> None:
    more = '[sweeper]\nwebhook_retention = "2d"\n'
    (error,) = errors(tmp_path, HMAC, more=more)
    assert (error.where, "sweeper.webhook_retention" in error.do) == ("providers.bank.webhook.redelivery", True)
    assert errors(tmp_path, HMAC + 'redelivery = "1d"\n', more=more) == []
