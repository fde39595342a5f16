"""Alembic's environment: idem's own version table in idem's own schema, on a connection that the runner hands over."""

from alembic import context

config = context.config

if context.is_offline_mode():
    context.configure(
        dialect_name="postgresql",
        # A paramstyle of "%s" would double every percent sign of the functions.
        dialect_opts={"paramstyle": "named"},
        version_table="alembic_version",
        version_table_schema="idem",
        literal_binds=True,
    )
    with context.begin_transaction():
        context.run_migrations()
else:
    context.configure(
        connection=config.attributes["connection"],
        version_table="alembic_version",
        version_table_schema="idem",
        transaction_per_migration=False,
    )
    with context.begin_transaction():
        context.run_migrations()
