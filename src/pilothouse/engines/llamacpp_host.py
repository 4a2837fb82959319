"""The process that hosts one llama.cpp server: `python -P -m pilothouse.engines.llamacpp_host OPTIONS`.

OPTIONS is `HostOptions` as JSON; the replica's key is in the environment. What the engine says goes to standard output
and error. The server has no way to be stopped, and needs none: what it holds is memory, so the signals that end a
process end this one, at once and without a word.
"""

import os
import signal
import sys
from typing import Any, NoReturn

import msgspec

from pilothouse.engines.base import REPLICA_KEY_VARIABLE
from pilothouse.engines.llamacpp_arguments import apply_arguments

EXIT_USAGE = 64  # EX_USAGE of sysexits.h
EXIT_NOT_INSTALLED = 69  # EX_UNAVAILABLE of sysexits.h


class HostOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What one server is told. `arguments` are llama.cpp's own long names, checked already."""

    model: str
    alias: str
    host: str
    port: int
    arguments: dict[str, Any] = {}


def main(argv: list[str]) -> NoReturn:
    """Serve until a signal ends the process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        options = msgspec.json.decode(argv[1] if len(argv) > 1 else "", type=HostOptions)
    except msgspec.DecodeError as error:
        _fail(EXIT_USAGE, f"the options are not understood: {error}")
    key = os.environ.pop(REPLICA_KEY_VARIABLE, None)
    if not key:
        _fail(EXIT_USAGE, f"{REPLICA_KEY_VARIABLE} is not set: a server without a key would be open to the whole host")
    try:
        import xllamacpp
    except ImportError as error:
        _fail(EXIT_NOT_INSTALLED, f"the xllamacpp package cannot be used: {error}")
    try:
        server = xllamacpp.Server(_parameters(options, key, xllamacpp))
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        _fail(1, f"the server did not start, the lines above say why ({error})")
    print(f"llamacpp_host: {options.alias} is served at {server.listening_address}", flush=True)  # noqa: T201
    while True:
        signal.pause()


def _parameters(options: HostOptions, key: str, xllamacpp: Any) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = options.model
    parameters.model_alias = {options.alias}
    parameters.hostnames = [options.host]
    parameters.port = options.port
    parameters.api_keys = [key]
    parameters.endpoint_metrics = True
    parameters.endpoint_slots = True
    parameters.ui = False
    # The server's own default lets any web page read its answers.
    parameters.cors_origins = ""
    apply_arguments(parameters, options.arguments, xllamacpp)
    if "threads-batch" not in options.arguments:
        parameters.cpuparams_batch.n_threads = parameters.cpuparams.n_threads
    return parameters


def _fail(status: int, message: str) -> NoReturn:
    print(f"llamacpp_host: {message}", file=sys.stderr, flush=True)  # noqa: T201
    # Threads that the engine left behind must not keep the process.
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv)
