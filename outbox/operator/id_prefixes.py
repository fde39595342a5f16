"""Finds ids by their first digits, as a person copies them from a narrow table. An ambiguous prefix is an error."""

import re
from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.values.errors import OperatorRefused

SHORTEST: Final = 4
"""Fewest hexadecimal digits of a prefix."""
SHOWN: Final = 5
"""How many ids an error names."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first digits of an id, as the range of ids that start with them."""

    text: str
    low: UUID
    high: UUID

    @classmethod
    def parse(cls, text: str) -> Self:
        """Dashes are optional. Raises ValueError."""
        digits = text.strip().lower()
        if not re.fullmatch(r"[0-9a-f]{4}[0-9a-f-]{0,32}", digits):
            raise ValueError(f"{text!r} is not an id: write the id, or its first {SHORTEST} digits (0-9, a-f) or more")
        whole = digits.replace("-", "")
        if len(whole) > 32:
            raise ValueError(f"{text!r} is longer than an id")
        return cls(digits, UUID(whole.ljust(32, "0")), UUID(whole.ljust(32, "f")))

    @property
    def whole(self) -> UUID | None:
        """The id itself, if all of it was given."""
        return self.low if self.low == self.high else None

    def __str__(self) -> str:
        return self.text


DEAD_LETTER_IDS = (
    "SELECT d.id FROM idem.dead_letters d WHERE d.id BETWEEN %(low)s AND %(high)s ORDER BY d.id LIMIT %(limit)s"
)


async def dead_letter(connection: AsyncConnection[Any], prefix: Prefix | UUID) -> UUID:
    """The dead letter whose id starts with these digits. Raises OperatorRefused if there is none, or several."""
    return await _one(connection, DEAD_LETTER_IDS, prefix, "dead letter", "idem dlq list")


INTENT_IDS = "SELECT n.id FROM idem.intents n WHERE n.id BETWEEN %(low)s AND %(high)s ORDER BY n.id LIMIT %(limit)s"


async def intent(connection: AsyncConnection[Any], prefix: Prefix | UUID) -> UUID:
    """The intent whose id starts with these digits. Raises OperatorRefused if there is none, or several."""
    return await _one(connection, INTENT_IDS, prefix, "intent", "idem intents list")


TOKEN_IDS = "SELECT t.id FROM idem.api_tokens t WHERE t.id BETWEEN %(low)s AND %(high)s ORDER BY t.id LIMIT %(limit)s"


async def token(connection: AsyncConnection[Any], prefix: Prefix | UUID) -> UUID:
    """The API token whose id starts with these digits. Raises OperatorRefused if there is none, or several."""
    return await _one(connection, TOKEN_IDS, prefix, "token", "idem token list")


async def _one(connection: AsyncConnection[Any], query: str, prefix: Prefix | UUID, what: str, where: str) -> UUID:
    if isinstance(prefix, UUID):
        return prefix
    if prefix.whole is not None:
        return prefix.whole  # the caller finds out whether it exists
    range_ = {"low": prefix.low, "high": prefix.high, "limit": SHOWN + 1}
    found = [row[0] for row in await (await connection.execute(query, range_)).fetchall()]
    if not found:
        raise OperatorRefused(f"no {what} has an id that starts with {prefix}: `{where}` lists them")
    if len(found) > 1:
        named = ", ".join(str(each) for each in found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
        raise OperatorRefused(f"several {what}s have ids that start with {prefix}: {named}. Give more digits")
    return UUID(str(found[0]))
