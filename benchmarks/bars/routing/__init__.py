"""Bars of routing: the offline replay of a public trace, and what a decision costs."""
