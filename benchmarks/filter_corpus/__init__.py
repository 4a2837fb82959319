"""Texts with known values in them, and texts with none: what the bars of the filter measure on."""
