"""The directory as a file: what is written is read, part by part."""

from pathlib import Path

import msgspec
import pytest

from pilothouse.model.ids import KeyId, OrganisationId, TenantId
from pilothouse.model.tenants import Key, Organisation, Tenant, TenantDirectory
from pilothouse.store.directory_file import KEYS_PER_PART, read_parts, write_directory

DIRECTORY = TenantDirectory(
    version=7,
    organisations=(Organisation(id=OrganisationId("acme"), name="Acme"),),
    tenants=(Tenant(id=TenantId("web"), organisation=OrganisationId("acme"), name="Web"),),
    keys=tuple(
        Key(id=KeyId(f"key_{number}"), tenant=TenantId("web"), digest=number.to_bytes(32))
        for number in range(2 * KEYS_PER_PART + 1)
    ),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_directory(tmp_path / "tenants", DIRECTORY)
    parts = list(read_parts(tmp_path / "tenants"))
    assert len(parts) == 4
    assert {part.version for part in parts} == {7}
    assert (parts[0].organisations, parts[0].tenants) == (DIRECTORY.organisations, DIRECTORY.tenants)
    assert tuple(key for part in parts for key in part.keys) == DIRECTORY.keys
    assert (tmp_path / "tenants").stat().st_mode & 0o777 == 0o600


def test_no_file_is_no_parts(tmp_path: Path) -> None:
    assert list(read_parts(tmp_path / "none")) == []


@pytest.mark.parametrize("cut", [1, 5, 100])
def test_damage_is_told(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "tenants"
    write_directory(path, DIRECTORY)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(msgspec.MsgspecError):
        list(read_parts(path))
