"""The service: what the HTTP API, tenants and webhooks need of the database.

Revision ID: 0002
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

HERE = Path(__file__).parent


def upgrade() -> None:
    for part in ("keys", "tenants", "webhooks"):
        op.execute(HERE.joinpath(f"0002_{part}.sql").read_text())


def downgrade() -> None:
    raise NotImplementedError("idem's tables hold money's history: drop the schema by hand, after a backup")
