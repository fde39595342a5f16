"""Real providers: how a row is settled, events that bring more than proofs, limits, pauses and shares of a lane.

Revision ID: 0004
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

HERE = Path(__file__).parent


def upgrade() -> None:
    parts = (
        *("settling", "lanes", "shares", "webhooks", "ledger", "accounts", "answers", "usage"),
        # Of all that stands before them.
        *("roles", "times", "durable", "inventory", "rights"),
    )
    for part in parts:
        op.execute(HERE.joinpath(f"0004_{part}.sql").read_text())


def downgrade() -> None:
    raise NotImplementedError("idem's tables hold money's history: drop the schema by hand, after a backup")
