"""`pilothouse tenants ...`, `pilothouse keys ...` and `pilothouse usage`: who may ask, how much, and what it cost."""

import asyncio
import csv
import datetime as dt
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.limit_options import LimitOptions, limits_of
from pilothouse.cli.output import CommandError, data_console, json_text, say
from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import KeyId, TenantId
from pilothouse.model.ledger import UsageBy, UsageRow
from pilothouse.model.tenant_records import KeyRecord, NewKey, TenantRecord
from pilothouse.model.tenants import Limits, Scope, Tier
from pilothouse.model.units import SECOND

if TYPE_CHECKING:
    from rich.table import Table

_Shape = TypeVar("_Shape")
_Fleet = Annotated[str | None, Parameter(env_var="PILOTHOUSE_FLEET")]
_Many = Parameter(consume_multiple=True)


_TIMEOUT_S = 15.0
_REVOKE_TIMEOUT_S = 3.0  # then the controller is as good as down
_ACTOR = "pilothouse, without a controller"

_SUMS = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


class _Tenants(msgspec.Struct):
    tenants: tuple[TenantRecord, ...]


class _Keys(msgspec.Struct):
    keys: tuple[KeyRecord, ...]


class _Usage(msgspec.Struct):
    usage: tuple[UsageRow, ...]


def tenants_create(
    id_: str,
    /,
    *,
    organisation: str | None = None,
    name: str = "",
    tier: Tier = Tier.STANDARD,
    weight: float = 1.0,
    kv_share: float = 1.0,
    model: Annotated[tuple[str, ...], _Many] = (),
    limits: Annotated[LimitOptions | None, Parameter(name="*")] = None,
    fleet: _Fleet = None,
) -> int:
    """Make a tenant, and its organisation if there is none.

    $ pilothouse tenants create web --organisation acme --requests-per-minute 600 --tokens-per-minute 100000

    Args:
        id_: Its id: 1 to 63 of a-z, 0-9, dot, dash and underscore.
        organisation: Whose it is; one of its own id if left out.
        name: What people call it.
        tier: The class of service of its requests.
        weight: Its share of service against others of its tier.
        kv_share: The part of a deployment's capacity that it may hold while others wait, above 0 to 1.
        model: A model it may use; several may be named. All if none is.
        limits: Limits.
        fleet: The fleet, if several are running.
    """
    body: dict[str, Any] = {
        "id": id_,
        "organisation": organisation or id_,
        "name": name,
        "tier": tier,
        "weight": weight,
        "kv_share": kv_share,
        "models": list(model) or None,
        "limits": msgspec.to_builtins(limits_of(limits, Limits())),
    }
    made = _call(fleet, "POST", "/v1/tenants", TenantRecord, body)
    say(f"tenant {made.id} of organisation {made.organisation}")
    print(made.id)
    return Exit.OK


def tenants_list(*, organisation: str | None = None, json: bool = False, fleet: _Fleet = None) -> int:
    """List the tenants.

    $ pilothouse tenants list
    $ pilothouse tenants list --organisation acme --json

    Args:
        organisation: Only those of one organisation.
        json: Everything about them, as JSON.
        fleet: The fleet, if several are running.
    """
    params = {} if organisation is None else {"organisation": organisation}
    found = _call(fleet, "GET", "/v1/tenants", _Tenants, params=params).tenants
    if json:
        print(json_text(found))
        return Exit.OK
    table = _table("tenant", "organisation", "tier", "weight", "limits", "state")
    for each in found:
        state = "active" if each.revoked_at is None else "revoked"
        table.add_row(each.id, each.organisation, each.tier, f"{each.weight:g}", _shown(each.limits), state)
    data_console().print(table)
    return Exit.OK


def tenants_show(id_: str, /, *, fleet: _Fleet = None) -> int:
    """Show everything about a tenant, as JSON.

    $ pilothouse tenants show web

    Args:
        id_: The tenant.
        fleet: The fleet, if several are running.
    """
    print(json_text(_call(fleet, "GET", _path("tenants", id_), TenantRecord)))
    return Exit.OK


def tenants_update(
    id_: str,
    /,
    *,
    name: str | None = None,
    tier: Tier | None = None,
    weight: float | None = None,
    kv_share: float | None = None,
    model: Annotated[tuple[str, ...] | None, _Many] = None,
    limits: Annotated[LimitOptions | None, Parameter(name="*")] = None,
    fleet: _Fleet = None,
) -> int:
    """Change a tenant. What is not named stays as it is.

    $ pilothouse tenants update web --tokens-per-minute 200000

    Args:
        id_: The tenant.
        name: What people call it.
        tier: The class of service of its requests.
        weight: Its share of service against others of its tier.
        kv_share: The part of a deployment's capacity that it may hold while others wait, above 0 to 1.
        model: The models it may use.
        limits: Limits.
        fleet: The fleet, if several are running.
    """
    change = _named(name=name, tier=tier, weight=weight, kv_share=kv_share, models=None if model is None else [*model])
    if limits is not None:
        now = _call(fleet, "GET", _path("tenants", id_), TenantRecord)
        change["limits"] = msgspec.to_builtins(limits_of(limits, now.limits))
    print(json_text(_call(fleet, "POST", _path("tenants", id_), TenantRecord, change)))
    return Exit.OK


def tenants_revoke(id_: str, /, *, fleet: _Fleet = None) -> int:
    """Accept no key of a tenant any more: within a second, also while the controller is down.

    $ pilothouse tenants revoke web

    Args:
        id_: The tenant.
        fleet: The fleet, if several are running.
    """
    _revoke(fleet, "tenants", id_)
    say(f"tenant {id_} is revoked: none of its keys is accepted any more")
    return Exit.OK


def tenants_rotate(id_: str, /, *, grace: float = 0.0, json: bool = False, fleet: _Fleet = None) -> int:
    """Make a new key for each key of a tenant that is in use.

    $ pilothouse tenants rotate web --grace 86400

    Args:
        id_: The tenant.
        grace: How long the old keys are still accepted, in seconds.
        json: The new keys as JSON.
        fleet: The fleet, if several are running.
    """
    now = dt.datetime.now(dt.UTC).timestamp() * SECOND
    _call(fleet, "GET", _path("tenants", id_), TenantRecord)
    keys = _call(fleet, "GET", "/v1/keys", _Keys, params={"tenant": id_}).keys
    in_use = [key for key in keys if key.revoked_at is None and (key.expires_at is None or key.expires_at > now)]
    made = [_call(fleet, "POST", _path("keys", key.id, "rotate"), NewKey, {"grace_s": grace}) for key in in_use]
    if json:
        print(json_text(made))
        return Exit.OK
    for old, new in zip(in_use, made, strict=True):
        print(f"{old.id}\t{new.key.id}\t{new.secret}")
    say(f"{len(made)} keys rotated: old id, new id and secret, which is not shown again")
    return Exit.OK


def keys_create(
    tenant: str,
    /,
    *,
    name: str = "",
    expires_in: float | None = None,
    scope: Annotated[tuple[Scope, ...], _Many] = tuple(Scope),
    network: Annotated[tuple[str, ...], _Many] = (),
    model: Annotated[tuple[str, ...], _Many] = (),
    limits: Annotated[LimitOptions | None, Parameter(name="*")] = None,
    json: bool = False,
    fleet: _Fleet = None,
) -> int:
    """Make a key for a tenant. Its secret is printed, and not shown again.

    $ pilothouse keys create web --name ci --expires-in 2592000
    $ pilothouse keys create web --network 10.0.0.0/8 --scope inference

    Args:
        tenant: The tenant.
        name: What people call it.
        expires_in: Seconds until it ends; never if left out.
        scope: What it may be used for; several may be named.
        network: A network it may be used from, as 10.0.0.0/8; several may be named. Everywhere if none is.
        model: A model it may use; several may be named. All of the tenant's if none is.
        limits: Limits.
        json: The key with everything about it, as JSON.
        fleet: The fleet, if several are running.
    """
    body: dict[str, Any] = {
        "tenant": tenant,
        "name": name,
        "scopes": list(scope),
        "networks": list(network) or None,
        "models": list(model) or None,
        "expires_at": _ends(expires_in),
        "limits": msgspec.to_builtins(limits_of(limits, Limits())),
    }
    _tell_secret(_call(fleet, "POST", "/v1/keys", NewKey, body), as_json=json)
    return Exit.OK


def keys_list(*, tenant: str | None = None, json: bool = False, fleet: _Fleet = None) -> int:
    """List the keys, without their secrets.

    $ pilothouse keys list --tenant web

    Args:
        tenant: Only those of one tenant.
        json: Everything about them, as JSON.
        fleet: The fleet, if several are running.
    """
    found = _call(fleet, "GET", "/v1/keys", _Keys, params={} if tenant is None else {"tenant": tenant}).keys
    if json:
        print(json_text(found))
        return Exit.OK
    now = dt.datetime.now(dt.UTC).timestamp() * SECOND
    table = _table("key", "tenant", "name", "limits", "state")
    for each in found:
        expired = each.expires_at is not None and each.expires_at <= now
        state = "revoked" if each.revoked_at is not None else "expired" if expired else "active"
        table.add_row(each.id, each.tenant, each.name, _shown(each.limits), state)
    data_console().print(table)
    return Exit.OK


def keys_show(id_: str, /, *, fleet: _Fleet = None) -> int:
    """Show everything about a key but its secret, as JSON.

    $ pilothouse keys show key_0123456789abcdef01234567

    Args:
        id_: The key's id, not its secret.
        fleet: The fleet, if several are running.
    """
    print(json_text(_call(fleet, "GET", _path("keys", id_), KeyRecord)))
    return Exit.OK


def keys_update(
    id_: str,
    /,
    *,
    name: str | None = None,
    expires_in: float | None = None,
    scope: Annotated[tuple[Scope, ...] | None, _Many] = None,
    network: Annotated[tuple[str, ...] | None, _Many] = None,
    model: Annotated[tuple[str, ...] | None, _Many] = None,
    limits: Annotated[LimitOptions | None, Parameter(name="*")] = None,
    fleet: _Fleet = None,
) -> int:
    """Change a key. What is not named stays as it is.

    $ pilothouse keys update key_0123456789abcdef01234567 --requests-per-minute 60

    Args:
        id_: The key's id, not its secret.
        name: What people call it.
        expires_in: Seconds from now until it ends.
        scope: What it may be used for.
        network: The networks it may be used from.
        model: The models it may use.
        limits: Limits.
        fleet: The fleet, if several are running.
    """
    change = _named(
        name=name,
        expires_at=_ends(expires_in),
        scopes=None if scope is None else [*scope],
        networks=None if network is None else [*network],
        models=None if model is None else [*model],
    )
    if limits is not None:
        now = _call(fleet, "GET", _path("keys", id_), KeyRecord)
        change["limits"] = msgspec.to_builtins(limits_of(limits, now.limits))
    print(json_text(_call(fleet, "POST", _path("keys", id_), KeyRecord, change)))
    return Exit.OK


def keys_revoke(id_: str, /, *, fleet: _Fleet = None) -> int:
    """Accept a key no more: within a second, also while the controller is down.

    $ pilothouse keys revoke key_0123456789abcdef01234567

    Args:
        id_: The key's id, not its secret.
        fleet: The fleet, if several are running.
    """
    _revoke(fleet, "keys", id_)
    say(f"{id_} is revoked")
    return Exit.OK


def keys_rotate(id_: str, /, *, grace: float = 0.0, json: bool = False, fleet: _Fleet = None) -> int:
    """Make a key with the same rights, and let the old one end.

    $ pilothouse keys rotate key_0123456789abcdef01234567 --grace 3600

    Args:
        id_: The old key's id, not its secret.
        grace: How long the old key is still accepted, in seconds.
        json: The new key with everything about it, as JSON.
        fleet: The fleet, if several are running.
    """
    _tell_secret(_call(fleet, "POST", _path("keys", id_, "rotate"), NewKey, {"grace_s": grace}), as_json=json)
    return Exit.OK


def usage(
    *,
    by: Annotated[tuple[UsageBy, ...], _Many] = (UsageBy.TENANT, UsageBy.MODEL),
    first_day: str | None = None,
    last_day: str | None = None,
    tenant: str | None = None,
    json: bool = False,
    as_csv: Annotated[bool, Parameter(name="--csv")] = False,
    parquet: Path | None = None,
    fleet: _Fleet = None,
) -> int:
    """Show what tenants have used, from the ledger.

    $ pilothouse usage
    $ pilothouse usage --by tenant day --first-day 2026-12-01 --csv > december.csv

    Args:
        by: What to add up by; several may be named.
        first_day: The first day, as YYYY-MM-DD in UTC.
        last_day: The last day.
        tenant: Only one tenant's.
        json: As JSON.
        as_csv: As CSV.
        parquet: Write a Parquet file instead (needs `pip install 'pilothouse[parquet]'`).
        fleet: The fleet, if several are running.
    """
    params = _named(by=",".join(by), first_day=first_day, last_day=last_day, tenant=tenant)
    rows = _call(fleet, "GET", "/v1/usage", _Usage, params=params).usage
    columns = [*dict.fromkeys(by), "turns", *_SUMS, "cost"]
    values = [[_value(row, column) for column in columns] for row in rows]
    if json:
        print(json_text([dict(zip(columns, each, strict=True)) for each in values]))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(values)
    elif parquet is not None:
        _write_parquet(parquet, columns, values)
        say(f"{len(values)} rows written to {parquet}")
    else:
        table = _table(*columns)
        for each in values:
            table.add_row(*map(str, each))
        data_console().print(table)
    return Exit.OK


TENANT_COMMANDS: dict[str, Callable[..., int]] = {
    "create": tenants_create,
    "list": tenants_list,
    "show": tenants_show,
    "update": tenants_update,
    "revoke": tenants_revoke,
    "rotate": tenants_rotate,
}
KEY_COMMANDS: dict[str, Callable[..., int]] = {
    "create": keys_create,
    "list": keys_list,
    "show": keys_show,
    "update": keys_update,
    "revoke": keys_revoke,
    "rotate": keys_rotate,
}
"""The verbs of both groups of commands."""


def _call(
    fleet: str | None,
    method: str,
    path: str,
    shape: type[_Shape],
    body: dict[str, Any] | None = None,
    *,
    params: dict[str, Any] | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> _Shape:
    async def ask() -> _Shape:
        from pilothouse.cli.admin_client import AdminClient
        from pilothouse.cli.locate import chosen_fleet, require_running

        paths = chosen_fleet(fleet, os.environ)
        async with AdminClient(paths, require_running(paths)) as admin:
            return await admin.call(method, path, shape, body=body, params=params, timeout_s=timeout_s)

    return asyncio.run(ask())


def _revoke(fleet: str | None, kind: str, id_: str) -> None:
    """Revoke through the controller; without one in the database itself, and the workers hear of it all the same."""
    try:
        _call(fleet, "POST", _path(kind, id_, "revoke"), dict[str, Any], {}, timeout_s=_REVOKE_TIMEOUT_S)
    except PilothouseError as error:
        if error.code != "controller_unreachable":
            raise
        from pilothouse.cli.fleet_loading import load_checked
        from pilothouse.cli.locate import chosen_fleet, require_running
        from pilothouse.store.revocations import RevocationFile
        from pilothouse.store.tenants import TenantStore

        paths = chosen_fleet(fleet, os.environ)
        file = require_running(paths).fleet_file
        spec = load_checked(None if file is None else Path(file), {}, os.environ).spec
        database = spec.controller.database or paths.database
        with TenantStore(database, paths.pepper, RevocationFile(paths.revocations)) as store:
            if kind == "tenants":
                store.revoke_tenant(TenantId(id_), _ACTOR)
            else:
                store.revoke_key(KeyId(id_), _ACTOR)


def _path(kind: str, id_: str, *more: str) -> str:
    if "/" in id_ or not id_:
        raise CommandError(f"{id_!r} is not an id")
    return "/".join(["", "v1", kind, id_, *more])


def _tell_secret(made: NewKey, *, as_json: bool) -> None:
    if as_json:
        print(json_text(made))
        return
    say(f"{made.key.id} of tenant {made.key.tenant}; the secret is not shown again")
    print(made.secret)


def _ends(seconds: float | None) -> int | None:
    if seconds is None:
        return None
    return int((dt.datetime.now(dt.UTC).timestamp() + seconds) * SECOND)


def _named(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _shown(limits: Limits) -> str:
    names = (" requests", " input", " output", " tokens")
    parts = [f"{rate.per_minute}{name}/min" for rate, name in zip(limits.per_minute, names, strict=True) if rate]
    if limits.concurrent_requests is not None:
        parts.append(f"{limits.concurrent_requests} at once")
    parts += [f"budget a {budget.period}" for budget in limits.budgets]
    return ", ".join(parts)


def _value(row: UsageRow, column: str) -> Any:
    return row.nano_cost / 1e9 if column == "cost" else getattr(row, column)


def _write_parquet(path: Path, columns: Sequence[str], values: Sequence[Sequence[Any]]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise PilothouseError(
            "extra_not_installed", "Parquet needs pyarrow.", hint="pip install 'pilothouse[parquet]'"
        ) from error
    pq.write_table(pa.table({name: [each[at] for each in values] for at, name in enumerate(columns)}), path)


def _table(*columns: str) -> "Table":
    from rich.table import Table

    return Table(*columns, box=None, pad_edge=False, header_style="bold")
