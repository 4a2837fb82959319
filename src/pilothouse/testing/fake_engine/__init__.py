"""A fake inference engine: a real process that speaks the OpenAI API, for testing what stands in front of engines.

It batches, pages, caches prefixes and reports as vLLM does, and computes nothing. In a test: `FakeEngine`. As a
process: `python -P -m pilothouse.testing.fake_engine`, or `pilothouse fake-engine`.
"""

from pilothouse.testing.fake_engine.command import main, parse, run
from pilothouse.testing.fake_engine.options import EngineOptions
from pilothouse.testing.fake_engine.scripts import Script
from pilothouse.testing.fake_engine.server import FakeEngine
from pilothouse.testing.fake_engine.state import EngineState, SeenRequest

__all__ = ["EngineOptions", "EngineState", "FakeEngine", "Script", "SeenRequest", "main", "parse", "run"]
