"""Weights on this host: from a Python package, a file, or the Hugging Face hub, checked before anything serves them."""

from pilothouse.placement.weights.progress import ProgressSink, Silent
from pilothouse.placement.weights.sources import resolve

__all__ = ["ProgressSink", "Silent", "resolve"]
