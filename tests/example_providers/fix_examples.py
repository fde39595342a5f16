"""The files of examples/providers, and the recorded shapes of their providers."""

import json
from pathlib import Path
from typing import Any

from idem.outbox.domain.contract import Response
from idem.outcomes import Pending, Refused, Succeeded
from idem.sending import Question

EXAMPLES = Path(__file__).parents[2] / "examples" / "providers"
RECORDED = Path(__file__).with_name("recorded")
NAMES = ("adyen", "checkout", "gocardless", "paypal", "square")
TOKEN_FILE = "/run/secrets/paypal_token"
KEY = "0b5f9b7e-2f3a-8c1d-9e4f-112233445566"
SENT_AT = 1796000000.0
PSP, REFUND = "NC6HT9CRT65ZGN82", "KHQC5N7G84BLNK43"
ORDER, PAYPAL_REFUND = "5O190127TN364715T", "1JU08902781691411"
SQUARE = "GQTFp1ZlXdpoW4o6eGiZhbjosiDFf"
SQUARE_REFUND = "UNOE3kv2BZwqHlJ830RCt5YCuaB_xVteEWVFkXDvKN1ddidfJWipt8p9whmElKT5mZtJ7wZ"
PAY, ACTION, PM = "pay_mbabizu24mvu3mela5njyhpit4", "act_fd3h6evhpn3uxdoqbuu3lqnqbm", "PM000000000001"
"""References in the recorded shapes."""
ENV = {
    "ADYEN_API_KEY": "adyen-key",
    "ADYEN_HMAC_KEY": "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056",
    "ADYEN_HMAC_KEY_BEFORE": "ab" * 32,
    "ADYEN_REFUNDS_HMAC_KEY": "cd" * 32,
    "CHECKOUT_SECRET_KEY": "checkout-key",
    "CHECKOUT_SIGNATURE_KEY": "signature of checkout",
    "CHECKOUT_REFUNDS_SIGNATURE_KEY": "signature of refunds",
    "GOCARDLESS_TOKEN": "gocardless-token",
    "GOCARDLESS_WEBHOOK_SECRET": "secret of gocardless",
    "SQUARE_TOKEN": "square-token",
    "SQUARE_SIGNATURE_KEY": "signature of square",
    "SQUARE_REFUNDS_SIGNATURE_KEY": "signature of square refunds",
}


def lay(name: str, folder: Path, **instead: str) -> Path:
    """Write the example into a file; the token file, its only path of the machine, is beside it."""
    text = (EXAMPLES / f"{name}.toml").read_text().replace(TOKEN_FILE, "token")
    for old, new in instead.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "token").write_text("paypal-token")
    path = folder / "idem.toml"
    path.write_text(text)
    return path


def recorded(provider: str, kind: str, name: str) -> Any:
    """A recorded shape with our key. `checkout_refunds` is Checkout.com too."""
    return json.loads((RECORDED / provider.partition("_")[0] / f"{kind}.json").read_text().replace("$KEY", KEY))[name]


def response(provider: str, kind: str, name: str) -> Response:
    shape = recorded(provider, kind, name)
    body = shape["body"]
    headers = {header.lower(): value for header, value in shape["headers"].items()}
    return Response(shape["status"], headers, body.encode() if isinstance(body, str) else json.dumps(body).encode())


def bare(said: Any) -> Any:
    """An outcome or a look without its fields."""
    if isinstance(said, Succeeded):
        return Succeeded(said.reference, said.status, interim=said.interim)
    return type(said)(said.reference, said.status) if isinstance(said, Refused | Pending) else said


def question(reference: str | None = None, path: str = "/payments") -> Question:
    return Question(KEY, reference, awaiting=reference is not None, sent_at=SENT_AT, method="POST", path=path)
