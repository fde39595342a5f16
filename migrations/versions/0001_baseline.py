"""The whole schema. Until the first release a change is made in these files; afterwards it is a revision of its own.

Revision ID: 0001
"""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

HERE = Path(__file__).parent
TABLES = ("values", "installation", "intents", "outbox", "rows", "history", "webhooks", "tenants", "handlers")
GUARDS = ("guards", "steps", "outbox_guards", "order", "history_guards", "lanes", "answers")
ACCEPT = ("keys", "accept", "approval", "inline", "json", "producers")
LAST = ("durable", "inventory", "rights")
"""Of all that stands before them."""


def upgrade() -> None:
    for part in (*TABLES, *GUARDS, *ACCEPT, *LAST):
        op.execute(HERE.joinpath(f"0001_{part}.sql").read_text())


def downgrade() -> None:
    raise NotImplementedError("idem's tables hold money's history: drop the schema by hand, after a backup")
