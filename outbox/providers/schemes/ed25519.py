"""Ed25519 public keys, as Standard Webhooks uses them. `cryptography` is loaded where a key is used, and only there."""

from typing import Final

LENGTH: Final = 32

FORGEABLE: Final = frozenset(
    bytes.fromhex(each)
    for each in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)
"""The points of small order, without their sign: anybody can sign under such a key. One is a placeholder of zeros."""


class PublicKey(bytes):
    """A public key. It has a type of its own so that it is never the key of an HMAC: everybody may know it."""

    __slots__ = ()


def public_key(raw: bytes) -> PublicKey:
    """The key of 32 bytes. Raises ValueError."""
    if len(raw) != LENGTH:
        raise ValueError(f"its key has {len(raw)} bytes; a public key of ed25519 has {LENGTH}")
    if raw[:-1] + bytes((raw[-1] & 0x7F,)) in FORGEABLE:
        raise ValueError("anybody can sign under this public key: it is no real one")
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise ValueError(
            "a public key needs the package cryptography, which idem's extra `daemon` brings "
            '(in a clone: pip install ".[daemon]")'
        ) from None
    Ed25519PublicKey.from_public_bytes(raw)
    return PublicKey(raw)


def verifies(key: PublicKey, signature: bytes, signed: bytes) -> bool:
    """Whether the owner of the key has signed these bytes. Nothing secret is compared here."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes(key)).verify(signature, signed)
    except InvalidSignature:
        return False
    return True
