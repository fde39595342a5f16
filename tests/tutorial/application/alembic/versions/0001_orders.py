"""orders"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "orders",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("state", sa.String, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("orders")
