"""Policies know no clock, no chance and no running loop: here these raise."""

import asyncio
import random
import time
from typing import NoReturn

import pytest


@pytest.fixture(autouse=True)
def _no_clock_no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    def impure(*_: object) -> NoReturn:
        raise AssertionError("a policy asked for the time, for chance or for the running loop")

    for module, name in (
        (time, "time"),
        (time, "monotonic"),
        (time, "monotonic_ns"),
        (random, "random"),
        (asyncio, "get_running_loop"),
    ):
        monkeypatch.setattr(module, name, impure)
