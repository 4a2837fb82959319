"""The tables, as SQLAlchemy Core sees them. `migrations/versions/` makes them; a test holds the two together."""

import sqlalchemy as sa

metadata = sa.MetaData()

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True, comment="public, `key_...`"),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False, comment="what the operator calls it"),
    sa.Column("digest", sa.Text, nullable=False, unique=True, comment="HMAC-SHA-256(pepper, key), hexadecimal"),
    sa.Column("created_at", sa.BigInteger, nullable=False, comment="nanoseconds since the epoch"),
)
