"""Tables of wrong settings."""

from collections.abc import Iterable
from datetime import date

Row = tuple[str, str, str] | tuple[str, str, str, str]
PROVIDER = f"""
[providers.bank]
verified = "{date.today()}"
key = {{ carrier = "header", name = "Idempotency-Key", replay = "stored", retention = "24h" }}
errors = {{ shape = "/error/code" }}
outcome = [{{ says = "final", when = {{ "/status" = "succeeded" }} }}]
accounts.main = {{ origin = "https://bank.example" }}
"""
OPERATION = """
[operations.pay]
provider = "bank"
path = "/payments"
body = { amount = "{amount}" }
[operations.pay.params]
type = "object"
additionalProperties = false
required = ["amount"]
properties = { amount = { type = "integer" } }
"""
SOUND = PROVIDER + OPERATION


def within(place: str, head: str, rows: Iterable[Row]) -> list[tuple[str, str, str, str]]:
    """What stands in the sound file, what is written instead, where the finding is, and a word of it.

    A row of three has what is added beneath `head`. Where it is begins at `place`, if it is empty or begins with a dot.
    """
    found = []
    for *what, where, word in rows:
        old, new = what if len(what) == 2 else (head, f"{head}\n{what[0]}")
        found.append((old, new, place + where if where[:1] in ("", ".") else where, word))
    return found
