"""That somebody has looked at what is masked stands in the evidence, before it is shown."""

from __future__ import annotations

import json
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.values import storable
from idem.outbox.values.errors import OperatorRefused

NOTE_UNMASKED = """
INSERT INTO idem.evidence (intent_id, source, kind, details)
SELECT n.id, 'operator', 'unmasked', %(details)s::jsonb FROM idem.intents n WHERE n.id = %(intent)s
"""


async def note(connection: AsyncConnection[object], intent: UUID, *, by: str) -> None:
    """Write down who is shown the frozen request and the provider's answers of this intent. Raises OperatorRefused."""
    if not by.strip():
        raise OperatorRefused("say who you are: idem records who has seen masked values")
    details = json.dumps(storable.fields({"by": storable.text(by, 200)}))
    await connection.execute(NOTE_UNMASKED, {"intent": intent, "details": details})
