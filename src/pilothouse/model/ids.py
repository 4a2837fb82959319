"""Names that must not be mixed up, as distinct types."""

from typing import NewType

FleetName = NewType("FleetName", str)
ModelName = NewType("ModelName", str)
"""The public name a client asks for."""
DeploymentName = NewType("DeploymentName", str)
ReplicaId = NewType("ReplicaId", str)
"""`<deployment>-<index>`, stable over restarts of the replica's process."""
OrganisationId = NewType("OrganisationId", str)
TenantId = NewType("TenantId", str)
KeyId = NewType("KeyId", str)
"""The public half of a key: safe in logs, never a metric label."""
RequestId = NewType("RequestId", str)
"""Made by the gateway, `req_` and 24 hexadecimal digits; the client's own id is only echoed."""
