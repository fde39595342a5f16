"""Signs events by Standard Webhooks or like Stripe."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from idem.testing.bank.errors import SettingsError
from idem.testing.bank.settings import BankAccount, BankApi


def headers(account: BankAccount, id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a delivery to this account, signed with all its secrets.

    Raises:
        SettingsError: a secret is invalid.
    """
    secrets = (account.webhook_secret, *account.old_webhook_secrets)
    if account.api is BankApi.STRIPE:
        return {"stripe-signature": stripe_signature(secrets, timestamp, body)}
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signature(secret, id, timestamp, body) for secret in secrets),
    }


def signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` of a delivery: `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`.

    Raises:
        SettingsError: the secret is not `whsec_` and base64.
    """
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        raise SettingsError("a webhook secret is whsec_ followed by base64") from error
    signed = b".".join((id.encode(), str(timestamp).encode(), body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def stripe_signature(secrets: Sequence[str], timestamp: int, body: bytes) -> str:
    """The `Stripe-Signature` of a delivery: `t=…`, and `v1=` with the hex of HMAC-SHA256 over `t.body` by each secret.

    The key is the whole secret, including `whsec_`.
    """
    signed = str(timestamp).encode() + b"." + body
    macs = [hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in secrets]
    return ",".join([f"t={timestamp}", *(f"v1={mac}" for mac in macs)])
