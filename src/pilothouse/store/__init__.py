"""Durable state: the fleet's keys in SQLite, the secrets beside it, and the operator's own credentials."""
