"""Engines and posture: what advisories cost to evaluate, and how soon they bite."""
