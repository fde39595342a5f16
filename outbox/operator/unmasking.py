"""Records in the evidence who sees masked values, before idem shows them."""

from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.settle.record import note_operator
from idem.outbox.values import storable
from idem.outbox.values.errors import OperatorRefused


async def note(connection: AsyncConnection[object], intent: UUID, *, by: str) -> None:
    """Record who sees the frozen request and the provider's answers of this intent. Raises OperatorRefused without a
    name.
    """
    if not by.strip():
        raise OperatorRefused("say who you are: idem records who has seen masked values")
    await note_operator(connection, intent, "unmasked", {"by": storable.text(by, 200)})
