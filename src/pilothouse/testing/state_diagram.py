"""Draws a machine's table of transitions as a Mermaid diagram, and keeps the one in a page of the docs up to date.

python -m pilothouse.testing.state_diagram docs/concepts/replica-lifecycle.md
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from pilothouse.policy.machine import Transitions
from pilothouse.policy.replica_lifecycle import TRANSITIONS

BEGIN = "<!-- drawn from the table of transitions: do not edit -->"
END = "<!-- end of the drawing -->"


def mermaid(transitions: Transitions) -> str:
    """A `stateDiagram-v2`: an arrow for each change of state, labelled with the events that can cause it."""
    labels: dict[tuple[str, str], list[str]] = {}
    for (state, event), transition in transitions.items():
        for target in transition.to:
            if target != state:
                labels.setdefault((state, target), []).append(event.__name__)
    return "\n".join(_lines(labels))


def _lines(labels: dict[tuple[str, str], list[str]]) -> Iterator[str]:
    sources = {source for source, _ in labels}
    targets = {target for _, target in labels}
    yield "stateDiagram-v2"
    for state in sorted(sources - targets):
        yield f"    [*] --> {state}"
    for (source, target), events in labels.items():
        yield f"    {source} --> {target}: {', '.join(events)}"
    for state in sorted(targets - sources):
        yield f"    {state} --> [*]"


def with_diagram(page: str, transitions: Transitions) -> str:
    """The page with the drawing between its two marks made anew. Raises ValueError if it lacks them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, behind = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no place for a drawing")
    return f"{before}{BEGIN}\n\n```mermaid\n{mermaid(transitions)}\n```\n\n{END}{behind}"


def main() -> None:
    """Draw the replica lifecycle into the page named on the command line."""
    page = Path(sys.argv[1])
    page.write_text(with_diagram(page.read_text(encoding="utf-8"), TRANSITIONS), encoding="utf-8")


if __name__ == "__main__":
    main()
