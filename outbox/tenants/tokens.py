"""Tokens of tenants: `idem_` and 32 random bytes. idem stores only their SHA-256, so a stolen table opens nothing.

A fast hash is enough: 256 random bits cannot be guessed, however fast the hash is.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.values.errors import OperatorRefused

TOKEN: Final = re.compile(r"idem_[A-Za-z0-9_-]{43}", re.ASCII)
TENANT: Final = re.compile(r"[A-Za-z0-9._-]{1,63}", re.ASCII)
LABEL: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,200}")


@dataclass(frozen=True, slots=True)
class Token:
    """A token's record. `last_used_at` is exact to a day."""

    id: UUID
    tenant_id: str
    label: str
    created_at: datetime
    created_by: str | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    revoked_reason: str | None


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request: the tenant, and which of its tokens it used."""

    tenant: str
    token_id: UUID
    label: str


def digest(token: str) -> bytes:
    """The stored hash of a token."""
    return hashlib.sha256(token.encode()).digest()


def check_tenant(tenant: str) -> str:
    """The tenant, if it can be one. Raises ValueError."""
    if not TENANT.fullmatch(tenant):
        raise ValueError("a tenant's name is 1 to 63 letters, digits, dots, dashes and underscores, e.g. acme-eu")
    return tenant


def check_label(label: str) -> str:
    """The label, if it can be one. Raises ValueError."""
    if not label.strip() or not LABEL.fullmatch(label):
        raise ValueError("a label is 1 to 200 characters on one line: say who uses the token, e.g. checkout-service")
    return label


CREATE = """
INSERT INTO idem.api_tokens (token_sha256, tenant_id, label, created_by)
VALUES (%(digest)s, %(tenant)s, %(label)s, %(by)s) RETURNING id
"""


async def create(
    connection: AsyncConnection[Any], tenant: str, label: str, *, by: str | None = None
) -> tuple[UUID, str]:
    """Create a token for a tenant: returns its id, and the token itself, which cannot be read again. Raises
    ValueError."""
    check_tenant(tenant)
    check_label(label)
    token = f"idem_{secrets.token_urlsafe(32)}"
    values = {"digest": digest(token), "tenant": tenant, "label": label, "by": by}
    record = await (await connection.execute(CREATE, values)).fetchone()
    assert record is not None
    return record[0], token


TOKENS = """
SELECT t.id, t.tenant_id, t.label, t.created_at, t.created_by, t.last_used_at, t.revoked_at, t.revoked_by,
       t.revoked_reason
  FROM idem.api_tokens t
 WHERE (%(tenant)s::text IS NULL OR t.tenant_id = %(tenant)s)
   AND (%(id)s::uuid IS NULL OR t.id = %(id)s)
   AND (%(revoked)s OR t.revoked_at IS NULL)
 ORDER BY t.tenant_id, t.id LIMIT %(limit)s
"""


async def tokens(
    connection: AsyncConnection[Any], *, tenant: str | None = None, revoked: bool = False, limit: int = 100
) -> list[Token]:
    """Tokens by tenant and age; `revoked` has those too that work no more."""
    values = {"tenant": tenant, "id": None, "revoked": revoked, "limit": limit}
    return [Token(*record) for record in await (await connection.execute(TOKENS, values)).fetchall()]


async def token(connection: AsyncConnection[Any], token_id: UUID) -> Token:
    """One token. Raises OperatorRefused where there is none."""
    values = {"tenant": None, "id": token_id, "revoked": True, "limit": 1}
    record = await (await connection.execute(TOKENS, values)).fetchone()
    if record is None:
        raise OperatorRefused(f"token {token_id} does not exist in this database: `idem token list` shows the tokens")
    return Token(*record)


REVOKE = """
UPDATE idem.api_tokens SET revoked_at = statement_timestamp(), revoked_by = %(by)s, revoked_reason = %(reason)s
 WHERE id = %(id)s AND revoked_at IS NULL
RETURNING revoked_at
"""


async def revoke(connection: AsyncConnection[Any], token_id: UUID, *, by: str, reason: str) -> Token:
    """End a token for good; the API's processes believe it for `api.token_cache` at most. Raises OperatorRefused."""
    done = await connection.execute(REVOKE, {"id": token_id, "by": by, "reason": reason})
    found = await token(connection, token_id)
    if done.rowcount == 0:
        raise OperatorRefused(f"token {token_id} is already revoked: by {found.revoked_by}, {found.revoked_reason}")
    return found


LOOK_UP = """
SELECT t.token_sha256, t.id, t.tenant_id, t.label,
       t.last_used_at IS NULL OR t.last_used_at < statement_timestamp() - interval '1 day' AS unmarked
  FROM idem.api_tokens t
 WHERE t.token_sha256 = ANY (%(digests)s) AND t.revoked_at IS NULL
"""


async def look_up(connection: AsyncConnection[Any], digests: Sequence[bytes]) -> dict[bytes, Caller]:
    """The owners of these tokens, without unknown or revoked ones."""
    found = await (await records(connection).execute(LOOK_UP, {"digests": list(digests)})).fetchall()
    stored = {bytes(row.token_sha256): row for row in found}
    owners: dict[bytes, Caller] = {}
    for wanted in digests:
        row = stored.get(wanted)
        if row is not None and hmac.compare_digest(bytes(row.token_sha256), wanted):
            owners[wanted] = Caller(row.tenant_id, row.id, row.label)
    if unmarked := [row.id for row in found if row.unmarked]:
        await _mark_used(connection, unmarked)
    return owners


MARK_USED = """
UPDATE idem.api_tokens SET last_used_at = statement_timestamp()
 WHERE id = ANY (ARRAY(SELECT t.id FROM idem.api_tokens t WHERE t.id = ANY (%(ids)s)
                        ORDER BY t.id FOR UPDATE SKIP LOCKED))
"""


async def _mark_used(connection: AsyncConnection[Any], ids: list[UUID]) -> None:
    # Only for people who look for tokens that nobody uses: a database that takes no writes still knows its callers.
    with suppress(psycopg.Error):
        await connection.execute(MARK_USED, {"ids": ids})
