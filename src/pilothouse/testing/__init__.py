"""What tests of a fleet need, ours and yours: a fake engine as a real process, and scripts for machines.

- `python -m pilothouse.testing.fake_engine`: an OpenAI-compatible server with a set latency, capacity and faults.
- `Playbook`: a script of events and the effects they must have.
"""

from pilothouse.testing.playbook import Matching, Playbook

__all__ = ["Matching", "Playbook"]
