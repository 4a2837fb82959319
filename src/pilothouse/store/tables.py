"""The tables, as SQLAlchemy Core sees them. `migrations/versions/` makes them; a test holds the two together.

Lists and limits are JSON in text columns: nothing is asked about their content, and both databases store text alike.
"""

import sqlalchemy as sa

metadata = sa.MetaData()

organisations = sa.Table(
    "organisations",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("limits", sa.Text, nullable=False),
    sa.Column("models", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),  # nanoseconds since the epoch, as all times here
)

tenants = sa.Table(
    "tenants",
    metadata,
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

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),  # public, `key_...`
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),  # what the operator calls it
    sa.Column("digest", sa.Text, nullable=False, unique=True),  # HMAC-SHA-256(pepper, key), hexadecimal
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("limits", sa.Text, nullable=False, server_default="{}"),
    sa.Column("models", sa.Text),
    sa.Column("scopes", sa.Text, nullable=False, server_default='["inference","models","usage"]'),
    sa.Column("networks", sa.Text),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("revoked_at", sa.BigInteger),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("change", sa.Text, nullable=False),
)

ledger = sa.Table(
    "ledger",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),  # the turn's request id
    sa.Column("organisation", sa.Text, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("deployment", sa.Text, nullable=False),
    sa.Column("arm", sa.Text, nullable=False),
    sa.Column("started_at", sa.BigInteger, nullable=False),
    sa.Column("first_content_at", sa.BigInteger),
    sa.Column("ended_at", sa.BigInteger, nullable=False),
    sa.Column("day", sa.Text, nullable=False),  # of its start in UTC, YYYY-MM-DD
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
    sa.Column("nano_cost", sa.BigInteger, nullable=False),
    sa.Column("counted_by", sa.Text, nullable=False),
    sa.Index("ledger_by_day", "day", "tenant"),
)
