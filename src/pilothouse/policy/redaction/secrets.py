"""Detectors of credentials. Each is decided at its marker, long before its end, and swallowed to its end.

The forms are those that the issuers publish for secret scanners.
"""

import re

from pilothouse.policy.redaction.detector import Candidate, Detector, secret

_KEY = "(?<![A-Za-z0-9_])"
_WORD = "[A-Za-z0-9_]*+"
_TOKEN = r"[A-Za-z0-9_\-]*+"
_AWS_CONTEXT = re.compile(r"(?i:aws.{0,20}secret|secret_?access_?key)")


def _aws_secret(candidate: Candidate) -> int:
    """Forty characters of base64 behind the words; a path or a single word is none."""
    raw = candidate.raw
    if not candidate.follows(_AWS_CONTEXT):
        return 0
    mixed = any(c.isdigit() for c in raw) and any(c.isupper() for c in raw) and any(c.islower() for c in raw)
    return len(raw) if mixed else 0


SECRETS: tuple[Detector, ...] = (
    secret("aws_key", "(?:AKIA|ASIA)[A-Z0-9]{16}", _KEY + "(?:AKIA|ASIA)[A-Z0-9]{16}", _WORD),
    Detector(
        entity="aws_key",
        group="secrets",
        triggers=("[A-Za-z0-9/+]{40}",),
        pattern=re.compile(r"(?<![A-Za-z0-9/+=])([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"),
        max_chars=41,
        shapes=frozenset({"aws_secret"}),
        check=_aws_secret,
        priority=9,
    ),
    secret("github_token", "gh[pousr]_[A-Za-z0-9]{20}", _KEY + "gh[pousr]_[A-Za-z0-9]{20}", _WORD),
    secret("github_token", "github_pat_[A-Za-z0-9]{20}", _KEY + "github_pat_[A-Za-z0-9]{20}", _WORD),
    secret("slack_token", "xox[abeoprs]-[A-Za-z0-9]", _KEY + r"xox[abeoprs]-(?:[0-9]-)?[A-Za-z0-9\-]{10}", _TOKEN),
    secret("google_key", r"AIza[A-Za-z0-9_\-]{30}", _KEY + r"AIza[A-Za-z0-9_\-]{30}", _TOKEN),
    secret("stripe_key", "[rs]k_(?:live|test)_[A-Za-z0-9]{16}", _KEY + "[rs]k_(?:live|test)_[A-Za-z0-9]{16}", _WORD),
    secret(
        "openai_key",
        r"sk-[A-Za-z0-9_\-]{20}",
        _KEY + r"sk-(?:(?:proj|svcacct|admin|ant|or)-)?(?=[A-Za-z_\-]{0,19}[0-9])[A-Za-z0-9_\-]{20}",
        _TOKEN,
    ),
    secret(
        "jwt",
        r"eyJ[A-Za-z0-9_\-]{5}",
        # A header that does not end is one too: it decodes to `{"`, and nothing else is so long and begins so.
        r"(?<![A-Za-z0-9_\-])eyJ[A-Za-z0-9_\-]{5,}\.eyJ|(?<![A-Za-z0-9_\-])eyJ[A-Za-z0-9_\-]{253}",
        r"[A-Za-z0-9_\-.]*+",
    ),
    secret(
        "private_key",
        "BEGIN [A-Z0-9 ]*PRIVATE KEY",
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----",
        r"[A-Za-z0-9+/=\s\\:,.\-]*+",
        ("run", "pem"),
        closing="-----END [A-Z0-9 ]{0,40}-----",
    ),
)
