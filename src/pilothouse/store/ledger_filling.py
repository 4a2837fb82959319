"""From the spool into the ledger."""

from pilothouse.store.ledger import MAX_BATCH, Ledger
from pilothouse.store.spool import SpoolReader


def fill_ledger(spool: SpoolReader, ledger: Ledger) -> int:
    """Insert what the spool has, remove files that are done with, and say how many rows were new.

    To be called about once a second by one process of the host. A failure loses nothing: what was read and not
    inserted is read again by the next process that opens the spool.

    Raises:
        PilothouseError: state_unreadable, when the ledger is not reachable.
    """
    inserted = 0
    for segment in spool.segments():
        # Asked before reading: a writer that ends in between is seen the next time.
        abandoned = segment.is_abandoned()
        while True:
            before = segment.offset
            rows = segment.read(MAX_BATCH)
            if not rows:
                break
            try:
                inserted += ledger.insert(rows)
            except BaseException:
                segment.offset = before
                raise
        if abandoned:
            segment.remove()
            spool.forget(segment)
    return inserted
