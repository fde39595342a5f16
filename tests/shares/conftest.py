"""A provider that a test holds back."""

from shares.gate import gate  # noqa: F401
