"""Certificates on P-256 of authorities, and of servers that they have signed."""

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


def certificate(
    name: str, signer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None = None
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate and its key: an authority's own, or one that `signer` has signed for localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    by, by_key = (subject, key) if signer is None else (signer[0].subject, signer[1])
    today = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(by).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1)).not_valid_after(today + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by_key.public_key()), critical=False)
    )  # fmt: skip
    if signer is None:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        built = built.add_extension(usage, critical=True)
    else:
        built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return built.sign(by_key, hashes.SHA256()), key


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def with_key(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bytes:
    """Both in one file, as a server loads them."""
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem(certificate) + private
