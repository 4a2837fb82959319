"""The fake engine as a process: `python -P -m pilothouse.testing.fake_engine`, and `pilothouse fake-engine`."""

import argparse
import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence

import uvloop

from pilothouse.engines.base import REPLICA_KEY_VARIABLE
from pilothouse.testing.fake_engine.kv_events import KvEventsUnavailableError
from pilothouse.testing.fake_engine.options import DEFAULT_MAX_MODEL_LEN, EngineOptions
from pilothouse.testing.fake_engine.scripts import NORMAL, parse_script
from pilothouse.testing.fake_engine.server import FakeEngine

_EXAMPLES = """\
examples:
  %(prog)s --port 8000 --served-model-name my-model
  %(prog)s --step-base-ms 20 --prefill-tokens-per-s 8000        latencies of a mid-size GPU
  %(prog)s --time-scale 0.01                                    the same behaviour, a hundred times faster
  %(prog)s --zero-latency --record-requests 0                   for measuring what is in front of it
  %(prog)s --scriptable                                         then POST /fake/script {"script": {"status": 503}}
  %(prog)s --script '{"stall_after": 5}'                        every answer stalls after five tokens
  %(prog)s --kv-events-endpoint 'tcp://*:5557' --kv-events-replay-endpoint 'tcp://*:5558'

The environment variable PILOTHOUSE_REPLICA_KEY sets the key that clients of /v1 must send.
Exit codes: 0 stopped by SIGTERM or SIGINT, 1 the address or an extra is not there, 2 bad options."""

_DEFAULTS = EngineOptions()
_FIELD = re.compile(rf"\b({'|'.join(EngineOptions.__struct_fields__)})\b")


def parser(prog: str = "python -P -m pilothouse.testing.fake_engine") -> argparse.ArgumentParser:
    """The command line. Long names with a counterpart in vLLM are vLLM's."""
    result = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s [options]",
        description="An OpenAI-compatible inference server without a model: real HTTP, batching, KV cache and metrics.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    group = result.add_argument_group("server")
    group.add_argument("--host", default=_DEFAULTS.host, help="address to listen on (%(default)s)")
    group.add_argument(
        "--port", type=int, default=8000, help="0 takes a free one; the address is printed (%(default)s)"
    )
    group.add_argument(
        "--served-model-name", nargs="+", default=list(_DEFAULTS.served_model_names), metavar="NAME",
        help="names a client may ask for; the first is reported (fake-model)",
    )  # fmt: skip
    _number(group, "startup_delay_s", "seconds before it listens, as an engine that loads weights")
    _number(group, "shutdown_timeout_s", "seconds that SIGTERM leaves to requests in work; 0 ends them")
    _number(group, "keep_alive_timeout_s", "seconds after which an idle connection is closed")

    group = result.add_argument_group("capacity")
    group.add_argument(
        "--max-model-len",
        type=int,
        metavar="N",
        help=f"longest prompt and answer, in tokens (what the KV cache holds, at most {DEFAULT_MAX_MODEL_LEN})",
    )
    _number(group, "kv_blocks", "size of the KV cache, in blocks")
    _number(group, "block_size", "tokens of a block")
    _number(group, "max_num_seqs", "sequences that run at once")
    _number(group, "max_num_batched_tokens", "tokens of one step")
    _flag(group, "enable_prefix_caching", "reuse blocks by content; on unless `false` or --no-enable-prefix-caching")
    group.add_argument(
        "--no-enable-prefix-caching", action="store_false", dest="enable_prefix_caching", help=argparse.SUPPRESS
    )

    group = result.add_argument_group("latency")
    _number(group, "step_base_ms", "a step takes this")
    _number(group, "step_per_sequence_ms", "and this for each decoding sequence")
    _number(group, "prefill_tokens_per_s", "and the time of its prefill tokens at this rate")
    _number(group, "time_scale", "all of it times this")
    _flag(group, "zero_latency", "answer at once, without scheduler and KV cache")

    group = result.add_argument_group("answers")
    _number(group, "seed", "of the text")
    _number(group, "output_tokens_min", "shortest answer when the request sets no limit")
    _number(group, "output_tokens_max", "longest answer when the request sets no limit")
    _number(group, "embedding_dimensions", "length of an embedding")

    group = result.add_argument_group("KV events (extra kv-events)")
    group.add_argument(
        "--kv-events-endpoint", metavar="URL", help="publish here; bound if it has * or ::, or is ipc://"
    )
    group.add_argument("--kv-events-replay-endpoint", metavar="URL", help="answer questions for past events here")
    group.add_argument("--kv-events-topic", default="", metavar="TOPIC", help="topic of the messages (empty)")
    group.add_argument(
        "--kv-events-format", default="map", choices=("map", "array"), help="events as maps, or as old vLLM sent them"
    )

    group = result.add_argument_group("faults")
    _flag(group, "scriptable", "obey the header x-fake-engine and POST /fake/script and /fake/reset")
    group.add_argument("--script", metavar="JSON", help="behaviour of every request that no other script is for")
    _number(group, "record_requests", "requests that /fake/state shows")
    return result


def parse(argv: Sequence[str] | None, environment: Mapping[str, str], prog: str | None = None) -> EngineOptions:
    """Options from a command line (default: this process's). Bad ones print a message and raise SystemExit(2)."""
    arguments = parser(prog) if prog is not None else parser()
    values = vars(arguments.parse_args(argv))
    names = tuple(values.pop("served_model_name"))
    script = values.pop("script")
    try:
        values["script"] = NORMAL if script is None else parse_script(script)
    except ValueError as error:
        arguments.error(f"argument --script: {error}")
    try:
        return EngineOptions(**values, served_model_names=names, api_key=environment.get(REPLICA_KEY_VARIABLE) or None)
    except ValueError as error:
        arguments.error(_FIELD.sub(lambda match: _name(match[0]), str(error)).replace("-names", "-name"))


def run(options: EngineOptions) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. The address is printed to stderr once it listens."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(options))
    except (OSError, KvEventsUnavailableError) as error:
        sys.stderr.write(f"fake engine: {error}\n")
        return 1
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, serve, and return the exit code."""
    return run(parse(argv, os.environ))


async def _serve(options: EngineOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    engine = FakeEngine(options)
    starting = loop.create_task(engine.start())
    stopping = loop.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        return
    starting.result()
    sys.stderr.write(f"fake engine: {options.served_model_names[0]} at {engine.url}\n")
    sys.stderr.flush()
    await stopping
    await engine.stop()


def _number(group: "argparse._ArgumentGroup", field: str, help_text: str) -> None:
    default = getattr(_DEFAULTS, field)
    kind: type[int | float] = int if isinstance(default, int) else float
    group.add_argument(_name(field), type=kind, default=default, metavar="N", help=f"{help_text} (%(default)s)")


def _flag(group: "argparse._ArgumentGroup", field: str, help_text: str) -> None:
    default = getattr(_DEFAULTS, field)
    group.add_argument(
        _name(field), nargs="?", type=_boolean, const=True, default=default, metavar="BOOL", help=help_text
    )


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false") from None


def _name(field: str) -> str:
    return "--" + field.replace("_", "-")
