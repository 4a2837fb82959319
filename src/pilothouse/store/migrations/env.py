"""What Alembic runs: the steps, on the connection and inside the transaction of whoever opens the database."""

from alembic import context

from pilothouse.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=False,  # the caller's transaction holds all steps
    render_as_batch=True,  # SQLite alters a table by copying it
)
context.run_migrations()
