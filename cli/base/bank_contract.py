"""What every idem.toml says about the fake bank: the form of its errors, its object and its outcomes."""

from typing import Final

BANK: Final = """\
[providers.{name}.errors]
shape = "/error/code"
code = "/error/code"
message = "/error/message"
reference = "/id"

[providers.{name}.object]
reference = "/id"
status = "/status"
fields = {{ amount = "/amount", currency = "/currency" }}

[[providers.{name}.outcome]]
says = "ambiguous"
status = "4xx"
when = {{ "/error/type" = "idempotency_error" }}

[[providers.{name}.outcome]]
says = "final"
when = {{ "/status" = "succeeded" }}

[[providers.{name}.outcome]]
says = "pending"
when = {{ "/status" = "processing" }}

[[providers.{name}.outcome]]
says = "refused"
when = {{ "/status" = "declined" }}
"""
"""A part of idem.toml, to format with the provider's `name`."""

PARAMS: Final = """\
[operations."{operation}".params]
type = "object"
required = ["amount", "order"]
additionalProperties = false

[operations."{operation}".params.properties]
amount = {{ type = "integer"{least} }}
order = {{ type = "string" }}
faults = {{ type = "array", items = {{ type = "string" }} }}
"""
"""The params of a payment, to format with the `operation` and what else holds for the amount."""
