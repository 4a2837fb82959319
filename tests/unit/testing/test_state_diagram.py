from pathlib import Path

import pytest

from pilothouse.model.events import ReplicaPlaced, ReplicaRequested
from pilothouse.policy.machine import Transition, Transitions
from pilothouse.policy.replica_lifecycle import TRANSITIONS
from pilothouse.testing.state_diagram import BEGIN, END, mermaid, with_diagram

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "replica-lifecycle.md"


def _transition(*to: str) -> Transition:
    return Transition(handler=lambda machine, event: None, to=to)


def test_arrows_are_changes_of_state_with_their_events() -> None:
    table: Transitions = {
        ("A", ReplicaRequested): _transition("A", "B"),
        ("A", ReplicaPlaced): _transition("B"),
        ("B", ReplicaPlaced): _transition("C"),
    }
    assert mermaid(table).splitlines() == [
        "stateDiagram-v2",
        "    [*] --> A",
        "    A --> B: ReplicaRequested, ReplicaPlaced",
        "    B --> C: ReplicaPlaced",
        "    C --> [*]",
    ]


def test_the_drawing_replaces_the_one_before() -> None:
    table: Transitions = {("A", ReplicaRequested): _transition("B")}
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = with_diagram(page, table)
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert "old" not in once
    assert with_diagram(once, table) == once


def test_a_page_without_a_place_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        with_diagram("page", {})


def test_the_page_on_the_replica_lifecycle_shows_the_table_as_it_is() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_diagram(page, TRANSITIONS) == page, (
        "run `python -m pilothouse.testing.state_diagram docs/concepts/replica-lifecycle.md`"
    )
