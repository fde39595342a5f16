"""A revision that fails half way, for tests of what it leaves."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE idem.outbox ADD COLUMN half integer")
    op.execute("CREATE TABLE idem.half (id integer)")
    op.execute("SELECT 1 / 0")


def downgrade() -> None:
    raise NotImplementedError("there is no downgrade of idem")
