"""Parses parameters, with Stripe's error messages."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from idem.testing.bank.order import FAULT_MEMBER
from idem.testing.bank.stripe.refusals import StripeError


def amount(params: Mapping[str, Any]) -> int:
    """The amount in minor units.

    Raises:
        StripeError: the amount is missing or not positive.
    """
    value = number(params, "amount")
    if value is None:
        raise StripeError.invalid("Missing required param: amount.", "parameter_missing", "amount")
    if value < 1:
        raise StripeError.invalid("Invalid positive integer", "parameter_invalid_integer", "amount")
    return value


def number(params: Mapping[str, Any], name: str) -> int | None:
    """A whole number; None if it is missing.

    Raises:
        StripeError: the value is not a whole number.
    """
    value = params.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not re.fullmatch(r"-?\d{1,15}", value):
        raise StripeError.invalid(f"Invalid integer: {value}", "parameter_invalid_integer", name)
    return int(value)


def flag(params: Mapping[str, Any], name: str) -> bool:
    """Whether the value is `true`; False if it is missing.

    Raises:
        StripeError: the value is neither `true` nor `false`.
    """
    value = params.get(name, "false")
    if value not in ("true", "false"):
        raise StripeError.invalid(f"Invalid boolean: {value}", None, name)
    return bool(value == "true")


def currency(params: Mapping[str, Any]) -> str:
    """The currency, in lower case.

    Raises:
        StripeError: the currency is missing or invalid.
    """
    value = params.get("currency")
    if not value:
        raise StripeError.invalid("Missing required param: currency.", "parameter_missing", "currency")
    if not isinstance(value, str) or len(value) != 3 or not value.isalpha():
        raise StripeError.invalid(f"Invalid currency: {value}.", None, "currency")
    return value.lower()


def metadata(params: Mapping[str, Any], before: Mapping[str, str] | None = None) -> dict[str, str]:
    """The metadata, merged into the earlier metadata; an empty value removes a member.

    Raises:
        StripeError: the metadata are not an object of short texts.
    """
    given = params.get("metadata", {})
    if given == "":
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(value, str) for value in given.values()):
        raise StripeError.invalid("Invalid metadata: expected a hash of strings.", None, "metadata")
    for name, value in given.items():
        if len(name) > 40 or len(value) > 500:
            raise StripeError.invalid(f"Metadata {name[:40]} is too long.", None, f"metadata[{name[:40]}]")
    merged = {**(before or {}), **given}
    if len(merged) > 50:
        raise StripeError.invalid("You cannot have more than 50 metadata keys.", None, "metadata")
    return {name: value for name, value in merged.items() if value != ""}


def rest(params: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """All other parameters, stored and shown unchanged."""
    return {name: value for name, value in params.items() if name not in {*known, "expand", FAULT_MEMBER}}
