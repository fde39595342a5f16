"""The token of tenant `demo`, created once for a folder and stored in it."""

from pathlib import Path

from idem.cli.base.options import who
from idem.cli.group.up_note import write_private
from idem.outbox.database import session
from idem.outbox.database.address import Address
from idem.outbox.tenants import tokens

TENANT = "demo"
LABEL = "idem up"
FILE = "token"


async def of_demo(address: Address, home: Path) -> str:
    """The token in this folder; creates a new one if this database accepts none."""
    kept = home / FILE
    word = kept.read_text().strip() if kept.exists() else ""
    async with await session.connect(address, name="idem up") as connection:
        stored = tokens.digest(word)
        owner = (await tokens.look_up(connection, [stored])).get(stored)
        if owner is not None and owner.tenant == TENANT:
            return word
        _, word = await tokens.create(connection, TENANT, LABEL, by=who(None))
    write_private(kept, word + "\n")
    return word
