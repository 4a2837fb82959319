"""Organisations, tenants, what keys may do, the audit log and the ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_APPEND_ONLY = {
    "sqlite": (
        "CREATE TRIGGER audit_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END",
        "CREATE TRIGGER audit_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END",
    ),
    "postgresql": (
        (
            "CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN RAISE EXCEPTION 'audit is append-only'; END$$"
        ),
        "CREATE TRIGGER audit_change BEFORE UPDATE OR DELETE ON audit EXECUTE FUNCTION audit_is_append_only()",
    ),
}
_EPOCH = 0  # when the tenants of keys that are older than this table were made is not known


def upgrade() -> None:
    """Create the tables; the tenants of the keys that exist become tenants of an organisation of their own name."""
    op.create_table(
        "organisations",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("limits", sa.Text, nullable=False),
        sa.Column("models", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tenants",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("organisation", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("limits", sa.Text, nullable=False),
        sa.Column("models", sa.Text),
        sa.Column("tier", sa.Text, nullable=False),
        sa.Column("weight", sa.Double, nullable=False),
        sa.Column("kv_share", sa.Double, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_at", sa.BigInteger),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("change", sa.Text, nullable=False),
    )
    op.create_table(
        "ledger",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("organisation", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("deployment", sa.Text, nullable=False),
        sa.Column("arm", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("first_content_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
        sa.Column("day", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
        sa.Column("nano_cost", sa.BigInteger, nullable=False),
        sa.Column("counted_by", sa.Text, nullable=False),
    )
    op.create_index("ledger_by_day", "ledger", ["day", "tenant"])
    with op.batch_alter_table("keys") as keys:
        keys.add_column(sa.Column("limits", sa.Text, nullable=False, server_default="{}"))
        keys.add_column(sa.Column("models", sa.Text))
        keys.add_column(sa.Column("scopes", sa.Text, nullable=False, server_default='["inference","models","usage"]'))
        keys.add_column(sa.Column("networks", sa.Text))
        keys.add_column(sa.Column("expires_at", sa.BigInteger))
        keys.add_column(sa.Column("revoked_at", sa.BigInteger))
    op.execute(
        "INSERT INTO organisations (id, name, limits, created_at) "
        f"SELECT DISTINCT tenant, tenant, '{{}}', {_EPOCH} FROM keys"
    )
    op.execute(
        "INSERT INTO tenants (id, organisation, name, limits, tier, weight, kv_share, created_at) "
        f"SELECT DISTINCT tenant, tenant, tenant, '{{}}', 'standard', 1.0, 1.0, {_EPOCH} FROM keys"
    )
    for statement in _APPEND_ONLY[op.get_bind().dialect.name]:
        op.execute(statement)


def downgrade() -> None:
    """Drop everything but the keys, which may do everything again."""
    with op.batch_alter_table("keys") as keys:
        for name in ("revoked_at", "expires_at", "networks", "scopes", "models", "limits"):
            keys.drop_column(name)
    op.drop_index("ledger_by_day", "ledger")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION audit_is_append_only() CASCADE")
    for name in ("ledger", "audit", "tenants", "organisations"):
        op.drop_table(name)
