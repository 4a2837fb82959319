"""`pilothouse simulate calibrate`: a profile from a recorded run, from kernel tables, or from a live replica."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import CommandError, say, working

if TYPE_CHECKING:
    from pilothouse.simulator.profile import Profile


def calibrate(
    recorded: Path | None = None,
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    name: str,
    model: str = "",
    gpu: str = "",
    kv_blocks: int | None = None,
    format_: Annotated[Literal["engine-log", "vtc"], Parameter(name="--format", show_default=True)] = "engine-log",
    layer_tables: Path | None = None,
    layers: int = 32,
    live: bool = False,
    url: str | None = None,
    fleet: Annotated[str | None, Parameter(env_var="PILOTHOUSE_FLEET")] = None,
    source: str = "",
    licence: str = "",
) -> int:
    """Fit an engine profile to a recorded run, to kernel times of one layer, or to a live replica.

    $ pilothouse simulate calibrate run.jsonl --kv-blocks 2588 --name mine --output mine.json
    $ pilothouse simulate calibrate --layer-tables profile/ --layers 32 --name mine --output mine.json
    $ pilothouse simulate calibrate --live --kv-blocks 4000 --name mine --output mine.json

    A recorded run is JSON lines of request_id, input_toks, output_toks, queued_ts, first_token_ts and last_token_ts, in
    seconds of one clock. A live replica is asked with one and with several clients, for about a minute.

    Args:
        recorded: The recorded run.
        output: Where to write the profile; `simulate.engine.profile` takes that path.
        name: What to call it.
        model: The model's name.
        gpu: The GPU's name.
        kv_blocks: The engine's own count of KV blocks, as it logs it at its start; waiting depends on it.
        format_: The form of the recorded run.
        layer_tables: A folder with dense.csv, per_sequence.csv and attention.csv.
        layers: The model's layers, for --layer-tables.
        live: Ask the running fleet.
        url: Another data plane than the running fleet's, for --live.
        fleet: The fleet, if several are running.
        source: Where the measurements come from.
        licence: Under which licence they are.
    """
    from pilothouse.simulator.profile import save

    if sum((recorded is not None, layer_tables is not None, live)) != 1:
        raise CommandError("give one of: a recorded run, --layer-tables, --live")
    try:
        if layer_tables is not None:
            from pilothouse.simulator.layer_tables import from_layer_tables

            profile = from_layer_tables(
                layer_tables, name=name, model=model, gpu=gpu, layers=layers, source=source, licence=licence
            )
        elif live:
            profile = _from_live(name, model, gpu, url, fleet)
        else:
            assert recorded is not None
            profile = _from_recorded(recorded, name, model, gpu, kv_blocks, format_, source, licence)
    except (OSError, KeyError, ValueError) as error:
        raise CommandError(f"it cannot be calibrated: {error}") from error
    if kv_blocks is not None:
        import msgspec

        profile = msgspec.structs.replace(profile, kv_blocks=kv_blocks)
    save(profile, output)
    say(f"written to {output}: {profile.provenance.method}")
    return Exit.OK


def _from_recorded(
    path: Path, name: str, model: str, gpu: str, kv_blocks: int | None, format_: str, source: str, licence: str
) -> "Profile":
    from pilothouse.simulator.calibration import calibrate as fit
    from pilothouse.simulator.calibration import read_engine_log, read_vtc_log
    from pilothouse.simulator.profile import Profile, Provenance

    if kv_blocks is None:
        raise CommandError("a recorded run needs --kv-blocks", hint="the engine logs it at its start")
    template = Profile(
        name=name,
        model=model,
        gpu=gpu,
        provenance=Provenance(source=source, method="", licence=licence),
        dense_ms=((0, 1.0),),
        kv_ms_per_token=0.0,
        pair_ms=0.0,
        kv_blocks=kv_blocks,
        separate_prefill=format_ == "vtc",
        block_tokens=1 if format_ == "vtc" else 16,
        max_batch_tokens=2048,
    )
    recorded = read_vtc_log(path) if format_ == "vtc" else read_engine_log(path)
    with working("searching coefficients"):
        return fit(recorded, template, source=source or str(path.name))


def _from_live(name: str, model: str, gpu: str, url: str | None, fleet: str | None) -> "Profile":
    """Decode steps from streams of one and of several clients; prefill from first tokens of short and long prompts."""
    import uvloop

    from pilothouse.cli.bench_load import Load, run_load
    from pilothouse.cli.chat_session import ChatSession
    from pilothouse.cli.locate import data_plane
    from pilothouse.simulator.live_fit import Observation, from_observations

    target = data_plane(url, fleet, os.environ)
    with ChatSession(target, model=model or None, system=None) as session:
        asked = session.model
    seen = []
    with working("asking the replica") as show:
        for clients in (1, 2, 4, 8):
            for prompt in (64, 256, 1024):
                show(f"asking the replica: {clients} clients, prompts of {prompt} tokens")
                load = Load(
                    model=asked,
                    requests=2 * clients,
                    duration_s=None,
                    concurrency=clients,
                    prompt_tokens=prompt,
                    max_tokens=32,
                    stream=True,
                    seed=clients * 10_000 + prompt,
                )
                seen += [
                    Observation(
                        clients=clients,
                        prompt=each.input_tokens,
                        output=max(each.output_tokens, 2),
                        first_s=each.tokens_at[0] - each.started,
                        total_s=each.tokens_at[-1] - each.started,
                    )
                    for each in uvloop.run(run_load(target, load, lambda _: None))
                    if each.error is None and len(each.tokens_at) > 1 and each.input_tokens
                ]
    return from_observations(seen, name=name, model=asked, gpu=gpu)
