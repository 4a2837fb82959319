"""From a request to the replica that should serve it, with the reason."""

from pilothouse.policy.routing.least_loaded import least_loaded

__all__ = ["least_loaded"]
