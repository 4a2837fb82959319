"""Who may ask, from memory alone: the directory of tenants and keys, and what is made of a key on its first use."""

import hashlib
import ipaddress
from collections.abc import Iterable

import msgspec

from pilothouse.model.errors import Refusal
from pilothouse.model.fleet import DeploymentView
from pilothouse.model.ids import DeploymentName, KeyId, ModelName, OrganisationId, TenantId
from pilothouse.model.tenants import DirectoryChange, Key, Organisation, Scope, Tenant, TenantDirectory
from pilothouse.model.units import SECOND, WallNs
from pilothouse.policy.limits.lease import LeaseSettings
from pilothouse.policy.limits.leased_plan import LeasedPlan
from pilothouse.policy.tokens.identity import TenantIdentity
from pilothouse.store.spool import RowNames, encode_names

_EXPIRED = Refusal(code="key_expired", message="The API key has expired.")
_NEVER = 1 << 63

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def tenant_salt(tenant: TenantId) -> str:
    """What partitions an engine's prefix cache. Not a secret: a client's own salt never gets to an engine."""
    return hashlib.sha256(tenant.encode()).hexdigest()[:32]


UNPLANNED = LeasedPlan((), LeaseSettings(), set(), scope="")
"""Stands for limits that nobody has asked for yet."""


class Caller:
    """A key with what stands above it, ready to be asked about.

    `models` are the public names it may use, `None` for all. `expires_at` is in nanoseconds since the epoch. `infers`:
    it is made for running models.
    """

    __slots__ = (
        "_fields",
        "_networks",
        "expires_at",
        "id",
        "infers",
        "key",
        "models",
        "organisation",
        "plan",
        "row_names",
        "salt",
        "tenant",
        "tenant_id",
    )

    def __init__(self, key: Key, tenant: Tenant, organisation: Organisation) -> None:
        self.key = key
        self.id = key.id
        self.tenant = tenant
        self.tenant_id = tenant.id
        self.organisation = organisation
        self.plan: LeasedPlan | None = UNPLANNED  # the limits, once somebody has asked for them
        self.salt = tenant_salt(tenant.id)
        self._fields: dict[DeploymentName, tuple[DeploymentView, bytes]] = {}
        self.row_names: dict[tuple[str, DeploymentName], bytes] = {}
        self.infers = Scope.INFERENCE in key.scopes
        self.models = _all_of(key.models, tenant.models, organisation.models)
        self.expires_at = _NEVER if key.expires_at is None else key.expires_at
        self._networks: tuple[_Network, ...] | None = (
            None if key.networks is None else tuple(map(ipaddress.ip_network, key.networks))
        )

    def name_rows(self, model: str, deployment: DeploymentName) -> bytes:
        """What the ledger's rows of these turns have in common, encoded; to be had from `row_names` from then on."""
        names = RowNames(
            organisation=self.organisation.id,
            tenant=self.tenant_id,
            key=self.id,
            model=ModelName(model),
            deployment=deployment,
        )
        encoded = self.row_names[model, deployment] = encode_names(names)
        return encoded

    def engine_fields(self, deployment: DeploymentView) -> bytes:
        """The members of a body that tell an engine whose it is: the tenant's salt, and its tier as a priority."""
        known = self._fields.get(deployment.name)
        if known is not None and known[0] is deployment:
            return known[1]
        fields: dict[str, object] = {}
        if deployment.salt_field is not None:
            fields[deployment.salt_field] = self.salt
        priority = deployment.priorities.get(self.tenant.tier)
        if deployment.priority_field is not None and priority is not None:
            fields[deployment.priority_field] = priority
        encoded = msgspec.json.encode(fields)[1:-1] + b"," if fields else b""
        self._fields[deployment.name] = deployment, encoded
        return encoded

    def check(self, address: str, wall: int) -> Refusal | None:
        """Whether the key is good now, and from this address."""
        if wall >= self.expires_at:
            return _EXPIRED
        if self._networks is not None and not _is_in(address, self._networks):
            return Refusal(code="key_not_allowed", message="The API key may not be used from this network.")
        return None

    def may(self, scope: Scope) -> Refusal | None:
        """Whether the key is made for this."""
        if scope in self.key.scopes:
            return None
        return Refusal(code="key_not_allowed", message=f"The API key is not made for this: it lacks `{scope.value}`.")

    def sees(self, model: str) -> bool:
        """Whether the model is one of those it may use."""
        return self.models is None or model in self.models


def _all_of(*lists: tuple[ModelName, ...] | None) -> frozenset[str] | None:
    """What is in every list; `None` is a list of everything."""
    named = [frozenset(each) for each in lists if each is not None]
    return frozenset.intersection(*named) if named else None


def _is_in(address: str, networks: Iterable[_Network]) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in networks)


class Callers:
    """All keys of the fleet by their digest. `generation` is another object after every change."""

    def __init__(self) -> None:
        self.version = 0
        self.generation = object()
        self.organisations: dict[OrganisationId, Organisation] = {}
        self.tenants: dict[TenantId, Tenant] = {}
        self.keys: dict[KeyId, Key] = {}
        self._by_digest: dict[bytes, Key] = {}
        self._known: dict[KeyId, Caller] = {}
        self._revoked: set[str] = set()

    def find(self, digest: bytes) -> Caller | None:
        """The key with this digest; `None` if there is none, or it has been revoked."""
        key = self._by_digest.get(digest)
        if key is None:
            return None
        caller = self._known.get(key.id)
        if caller is None:
            tenant = self.tenants.get(key.tenant)
            organisation = None if tenant is None else self.organisations.get(tenant.organisation)
            if tenant is None or organisation is None:
                return None  # revoked with its tenant
            caller = self._known[key.id] = Caller(key, tenant, organisation)
        return caller

    def of_token(self, identity: TenantIdentity) -> Caller | None:
        """Who a token speaks for; `None` if the fleet has no such tenant (any more).

        Its key has no limits of its own, and stands in the ledger for the token's subject.
        """
        tenant = self.tenants.get(identity.tenant)
        organisation = None if tenant is None else self.organisations.get(tenant.organisation)
        if tenant is None or organisation is None:
            return None
        key = Key(
            id=identity.key,
            tenant=tenant.id,
            digest=b"",
            expires_at=WallNs(int(identity.expires_at_s * SECOND)),
        )
        tenant = msgspec.structs.replace(tenant, tier=identity.tier_within(tenant.tier))
        return Caller(key, tenant, organisation)

    def use(self, parts: Iterable[TenantDirectory]) -> None:
        """Begin anew with a whole directory."""
        fresh = Callers()
        for part in parts:
            fresh.add(part)
        self.become(fresh)

    def add(self, part: TenantDirectory) -> None:
        """Take in a part of a directory. For one that nobody uses yet; see `become`."""
        self.version = part.version
        self._put(part.organisations, part.tenants, part.keys)

    def become(self, fresh: "Callers") -> None:
        """Go on as `fresh`, but for what has been revoked here."""
        self.version = fresh.version
        self.organisations, self.tenants = fresh.organisations, fresh.tenants
        self.keys, self._by_digest = fresh.keys, fresh._by_digest
        self.revoke(self._revoked)

    def change(self, change: DirectoryChange) -> bool:
        """Take in a change. False if it is not one of this version: then nothing is changed."""
        if change.version <= self.version:
            return True
        if change.base > self.version:
            return False
        self.version = change.version
        self._put(change.organisations, change.tenants, change.keys)
        self.revoke([*change.gone_tenants, *change.gone_keys])
        return True

    def revoke(self, ids: Iterable[str]) -> None:
        """Accept these keys, or all keys of these tenants, no more; also if a later directory has them still."""
        for id_ in list(ids):
            self._revoked.add(id_)
            self.tenants.pop(TenantId(id_), None)
            key = self.keys.pop(KeyId(id_), None)
            if key is not None:
                self._by_digest.pop(key.digest, None)
        self._known = {}
        self.generation = object()

    def _put(self, organisations: Iterable[Organisation], tenants: Iterable[Tenant], keys: Iterable[Key]) -> None:
        for organisation in organisations:
            self.organisations[organisation.id] = organisation
        for tenant in tenants:
            if tenant.id not in self._revoked:
                self.tenants[tenant.id] = tenant
        for key in keys:
            if key.id not in self._revoked:
                self.keys[key.id] = self._by_digest[key.digest] = key
