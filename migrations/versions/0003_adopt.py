"""Inside somebody's own application: reserve and submit, local and inline operations, SQL producers, interim answers.

Revision ID: 0003
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

HERE = Path(__file__).parent


def upgrade() -> None:
    for part in ("interim", "reserve", "inline", "producers", "events"):
        op.execute(HERE.joinpath(f"0003_{part}.sql").read_text())


def downgrade() -> None:
    raise NotImplementedError("idem's tables hold money's history: drop the schema by hand, after a backup")
