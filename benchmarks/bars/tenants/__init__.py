"""Tenants: what limits and fair shares cost, and what they give."""
