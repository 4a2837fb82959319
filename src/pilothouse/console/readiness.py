"""Whether the fleet can serve: what `/readyz` answers, and why."""

import msgspec

from pilothouse.model.fleet import ReplicaState
from pilothouse.model.status import FleetStatus


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One condition. `detail` says what is the matter when it does not hold."""

    name: str
    ok: bool
    detail: str = ""


def checks(status: FleetStatus) -> tuple[Check, ...]:
    """A worker is connected, and each model has at least one replica that is Ready.

    That is less than `status.ready` (every wanted replica is): a fleet that has lost a replica still serves.
    """
    found = [Check(name="workers", ok=bool(status.workers), detail="no gateway worker is connected")]
    for model in sorted({replica.model for replica in status.replicas}):
        states = [replica.state for replica in status.replicas if replica.model == model]
        found.append(
            Check(
                name=f"model/{model}",
                ok=ReplicaState.READY in states,
                detail=f"no replica is Ready ({', '.join(sorted(states))})",
            )
        )
    return tuple(found)


def render(found: tuple[Check, ...]) -> str:
    """One line for each check and one for the verdict, in the form of the Kubernetes API server's /readyz?verbose."""
    lines = [f"[+]{check.name} ok" if check.ok else f"[-]{check.name} failed: {check.detail}" for check in found]
    verdict = "passed" if all(check.ok for check in found) else "failed"
    return "\n".join([*lines, f"readyz check {verdict}", ""])
