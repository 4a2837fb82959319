"""Bars of the hardened data plane."""
