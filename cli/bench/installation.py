"""The files of a bench: idem.toml with the HTTP providers, and a certificate for the one with TLS."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from idem.cli.bench.database import ENVIRONMENT

TOKEN = "BENCH_TOKEN"
"""The variable with the credential of the HTTP providers."""
HOST = "127.0.0.1"

TOML = """\
# Written by `idem bench`.
environment = "{environment}"
app = "idem.cli.bench.application:idem"

[worker]
slots = {slots}
{providers}"""

PROVIDER = """
[providers.{name}]
deadline = "20s"
on_unsettleable = "operator"

[providers.{name}.key]
carrier = "header"
name = "Idempotency-Key"
replay = "stored"
retention = "1d"

[providers.{name}.object]
reference = "/id"
status = "/status"

[[providers.{name}.outcome]]
says = "final"
when = {{ "/status" = "succeeded" }}

[providers.{name}.accounts.main]
origin = "{origin}"
{trusted}authorization = {{ env = "{token}", prefix = "Bearer " }}

[operations."bench.{name}"]
provider = "{name}"
path = "/payments"
body = {{ amount = "{{amount}}", currency = "eur", order = "{{order}}" }}

[operations."bench.{name}".params]
type = "object"
required = ["amount", "order"]
additionalProperties = false

[operations."bench.{name}".params.properties]
amount = {{ type = "integer" }}
order = {{ type = "string" }}
"""


def write(folder: Path, slots: int, origins: dict[str, str]) -> Path:
    """Write idem.toml with an HTTP provider for each origin, by name; one at https:// trusts the bench's certificate.
    Returns its path.
    """
    providers = (
        PROVIDER.format(
            name=name,
            origin=origin,
            token=TOKEN,
            trusted='ca_file = "certificate.pem"\n' if origin.startswith("https:") else "",
        )
        for name, origin in origins.items()
    )
    path = folder / "idem.toml"
    path.write_text(TOML.format(environment=ENVIRONMENT, slots=slots, providers="".join(providers)))
    return path


def certificate(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate for this machine's loopback address (P-256, one day), and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "idem bench")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    public, secret = folder / "certificate.pem", folder / "key.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.touch(mode=0o600)
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return public, secret
