"""A revision of tomorrow, for tests of the upgrade. It takes the strong lock of each table that live traffic writes."""

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = ("intents", "idempotency_keys", "outbox", "requests", "evidence")


def upgrade() -> None:
    for table in TABLES:
        op.execute(f"ALTER TABLE idem.{table} ADD COLUMN tomorrow integer")
    op.execute(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    raise NotImplementedError("there is no downgrade of idem")
