"""Where the public traces and measurements are."""

import os
from pathlib import Path

DATA = Path(os.environ.get("PILOTHOUSE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
"""A folder of public traces and measured tables; every file's origin and licence is in its README.md."""

CONVERSATION = DATA / "mooncake" / "conversation_trace.jsonl.gz"
RTX4090 = DATA / "llmservingsim" / "rtx4090_llama-3.1-8b"
VTC = DATA / "vtc"
REFERENCE = DATA / "reference"
