"""Reads the metrics text of engines: Prometheus text format 0.0.4, and OpenMetrics as far as samples go."""

import re
from collections.abc import Iterator

MAX_TEXT_BYTES = 8 * 1024 * 1024
"""vLLM's page is about 200 kB, and one with many histograms ten times that; a larger one is not read."""

# name, labels in braces (whose quoted values may hold anything, with backslashes for quotes), value, and what may
# follow it: a timestamp, an exemplar.
_SAMPLE = re.compile(
    rb"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*(?:\{(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*\})?[ \t]+([^ \t#]+)(?:[ \t].*)?"
)


def samples(text: bytes) -> Iterator[tuple[str, float]]:
    """The name and value of every sample, in order; a name occurs once for each of its sets of labels.

    Comments, lines that are no samples and values that are no numbers (NaN among them) are left out: one line that an
    engine gets wrong does not hide the others. A text over MAX_TEXT_BYTES has no samples.
    """
    if len(text) > MAX_TEXT_BYTES:
        return
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match is None:
            continue
        try:
            value = float(match[2])
        except ValueError:
            continue
        if value == value:  # not NaN: an engine's word for having nothing to tell
            yield match[1].decode(), value
