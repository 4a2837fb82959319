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
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ParquetMissing("Parquet needs pyarrow: pip install 'pilothouse[simulator]'") from error
    columns = {name: pyarrow.array(values, type=pyarrow.int64()) for name, values in records.columns.items()}
    for name, indices, words in (
        ("tenant", records.tenant, records.tenants),
        ("fault", records.fault, records.faults),
    ):
        columns[name] = pyarrow.DictionaryArray.from_arrays(
            pyarrow.array(indices, type=pyarrow.int64()).cast(pyarrow.int32()), pyarrow.array(words, pyarrow.string())
        )
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
