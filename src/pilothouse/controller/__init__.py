"""The control plane: makes what runs become what the fleet file wants, and tells the workers.

`Controller` composes the lifecycle machines, the local placement, the engine drivers and the publisher. It can die at
any moment without a failed request: workers keep the last snapshot, replicas run on, the next controller adopts them.
"""

from pilothouse.controller.controller import Controller

__all__ = ["Controller"]
