"""The turns of a run as a Parquet file, for notebooks. Needs the extra `simulator`."""

from pathlib import Path

from pilothouse.simulator.records import Records


class ParquetMissing(Exception):  # noqa: N818 - it says what to install
    """pyarrow is not installed."""


def write_parquet(records: Records, path: Path) -> None:
    """One row a turn, with the columns of `records.COLUMNS`, `tenant` and `fault`.

    Raises:
        ParquetMissing: the extra `simulator` is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ParquetMissing("Parquet needs pyarrow: pip install 'pilothouse[simulator]'") from error
    columns = {name: pa.array(values, type=pa.int64()) for name, values in records.columns.items()}
    for name, indices, words in (
        ("tenant", records.tenant, records.tenants),
        ("fault", records.fault, records.faults),
    ):
        columns[name] = pa.DictionaryArray.from_arrays(
            pa.array(indices, type=pa.int64()).cast(pa.int32()), pa.array(words, pa.string())
        )
    parquet.write_table(pa.table(columns), path)
