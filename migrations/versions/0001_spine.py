"""The spine: tables, guards and accept.

Revision ID: 0001
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

HERE = Path(__file__).parent


def upgrade() -> None:
    for part in ("tables", "guards", "accept"):
        op.execute(HERE.joinpath(f"0001_{part}.sql").read_text())


def downgrade() -> None:
    raise NotImplementedError("idem's tables hold money's history: drop the schema by hand, after a backup")
