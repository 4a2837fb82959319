"""The last line of defence: what looks like a credential never leaves in a log line.

Nothing should log a key in the first place; this is for the day when an exception's text carries one.
"""

import re

_KEY = re.compile(rb"(?<![A-Za-z0-9])ph_[A-Za-z0-9_\-]{8,}")
_BEARER = re.compile(rb"bearer\s+[A-Za-z0-9._~+/=\-]{8,}", re.IGNORECASE)


def redact(text: bytes) -> bytes:
    """`text` with keys of the fleet (`ph_...`) and bearer tokens replaced."""
    # A search for a literal costs a hundredth of the expression, and nearly always ends the matter.
    if b"ph_" in text:
        text = _KEY.sub(b"ph_[redacted]", text)
    if b"earer" in text or b"EARER" in text:
        text = _BEARER.sub(b"Bearer [redacted]", text)
    return text
