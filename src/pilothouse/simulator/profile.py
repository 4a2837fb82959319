"""Engine profiles: what a model on a kind of GPU costs a step, as data with its provenance and its error bars."""

import importlib.resources
from pathlib import Path

import msgspec

from pilothouse.simulator.links import Link
from pilothouse.simulator.step_times import EngineLimits, ExpertTerm, StepTimes, curve

_FOLDER = "profiles"
_USED_MEMORY = 0.9
"""vLLM's default `gpu_memory_utilization`."""
_ACTIVATION_BYTES = 2 * 2**30


class Provenance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a profile's figures come from, and how far off they may be."""

    source: str
    method: str
    licence: str
    estimate: bool = False
    """No measurement of this GPU stands behind it; every output says so."""
    decode_error: tuple[float, float] | None = None
    """Mean and largest relative error of decode steps against the source."""
    residual: float | None = None
    """Of a calibration by a recorded run: its cost where the search ended."""
    prefill_error: tuple[float, float] | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model on one kind of GPU in one layout. Times are milliseconds; see `StepTimes` for the law they stand in."""

    name: str
    model: str
    gpu: str
    provenance: Provenance
    tensor_parallel: int = 1
    dense_ms: tuple[tuple[int, float], ...]
    sampled_ms: tuple[tuple[int, float], ...] = ()
    kv_ms_per_token: float
    kv_mixed_ms_per_token: float | None = None
    """For KV read in steps that also prefill; as in pure decode steps if left out."""
    pair_ms: float
    decode_sequence_ms: float = 0.0
    overhead_ms: float = 0.0
    """Of the engine's own processor time that the GPU waits for, a step."""
    prefill_ms: float = 0.0
    """Of a step that computes prompts, beyond one that only decodes."""
    experts: ExpertTerm | None = None
    separate_prefill: bool = False
    """Prompts are computed in steps of their own, between decode steps, as S-LoRA and LightLLM do."""
    serial_ms: tuple[tuple[int, float], ...] = ()
    """Of `dense_ms`, what more GPUs do not divide: small kernels, launches, normalisation."""
    layers: int = 0
    hidden: int = 0
    adapter_tokens: int = 0
    """KV places that each tenant's adapter takes while a turn of it runs (S-LoRA's unified pool)."""
    parameters_billion: float | None = None
    kv_bytes_per_token: int | None = None
    gpu_memory_bytes: int | None = None
    """Of one GPU."""
    kv_blocks: int | None = None
    """Of the recorded engine; a scenario's own count goes before it."""
    block_tokens: int = 16
    max_batch_tokens: int = 8192
    max_sequences: int = 256

    def limits(self, kv_blocks: int | None = None) -> EngineLimits:
        """The bounds of an engine of this profile.

        Raises:
            ValueError: nobody says how many KV blocks it has.
        """
        blocks = kv_blocks or self.kv_blocks or self.default_kv_blocks()
        if blocks is None:
            raise ValueError(f"profile {self.name} has no KV block count; give the engine's own")
        return EngineLimits(
            kv_blocks=blocks,
            block_tokens=self.block_tokens,
            max_batch_tokens=self.max_batch_tokens,
            max_sequences=self.max_sequences,
        )

    def default_kv_blocks(self, stages: int = 1) -> int | None:
        """The blocks that are left beside weights, by vLLM's default share of memory: an estimate of the engine's own.

        `None` if the profile does not say enough, or if the weights do not fit.
        """
        if self.parameters_billion is None or self.kv_bytes_per_token is None or self.gpu_memory_bytes is None:
            return self.kv_blocks
        room = self.tensor_parallel * stages * (_USED_MEMORY * self.gpu_memory_bytes - _ACTIVATION_BYTES)
        room -= self.parameters_billion * 2e9
        blocks = int(room / (self.kv_bytes_per_token * self.block_tokens))
        return blocks if blocks > 0 else None

    def sharded(self, gpus: int, link: Link) -> "Profile":
        """The same model over `gpus` GPUs by tensor parallelism: what divides, divided; what does not; all-reduces.

        Raises:
            ValueError: it is sharded already, or does not say how large the model is.
        """
        if gpus == 1:
            return self
        if self.tensor_parallel != 1 or not self.layers or not self.hidden:
            raise ValueError(f"profile {self.name} cannot be sharded")
        most = self.dense_ms[-1][0]
        serial = curve(self.serial_ms, most)
        dense = tuple(
            (n, (t - serial[n]) / gpus + serial[n] + link.step_ms(gpus, self.layers, self.hidden, n))
            for n, t in self.dense_ms
        )
        experts = self.experts
        return msgspec.structs.replace(
            self,
            name=f"{self.name}-tp{gpus}",
            tensor_parallel=gpus,
            dense_ms=dense,
            serial_ms=(),
            kv_ms_per_token=self.kv_ms_per_token / gpus,
            kv_mixed_ms_per_token=None if self.kv_mixed_ms_per_token is None else self.kv_mixed_ms_per_token / gpus,
            pair_ms=self.pair_ms / gpus,
            experts=None if experts is None else msgspec.structs.replace(experts, all_ms=experts.all_ms / gpus),
            kv_blocks=None,
        )

    def times(self, limits: EngineLimits) -> StepTimes:
        """Its step times, for batches within `limits`."""
        return StepTimes(
            dense_ms=self.dense_ms,
            sampled_ms=self.sampled_ms,
            kv_ms=self.kv_ms_per_token,
            kv_mixed_ms=self.kv_ms_per_token if self.kv_mixed_ms_per_token is None else self.kv_mixed_ms_per_token,
            pair_ms=self.pair_ms,
            overhead_ms=self.overhead_ms,
            prefill_ms=self.prefill_ms,
            decode_sequence_ms=self.decode_sequence_ms,
            experts=self.experts,
            limits=limits,
        )


def load(name_or_path: str) -> Profile:
    """A profile that comes with the package, by its name, or one in a file, by its path.

    Raises:
        LookupError: there is no profile of that name.
        OSError, msgspec.MsgspecError: the file cannot be read, or is no profile.
    """
    if "/" in name_or_path or name_or_path.endswith(".json"):
        return msgspec.json.decode(Path(name_or_path).read_bytes(), type=Profile)
    found = importlib.resources.files("pilothouse.simulator").joinpath(_FOLDER, f"{name_or_path}.json")
    if not found.is_file():
        raise LookupError(f"there is no profile {name_or_path}; there are {', '.join(names())}")
    return msgspec.json.decode(found.read_bytes(), type=Profile)


def names() -> list[str]:
    """The profiles that come with the package."""
    folder = importlib.resources.files("pilothouse.simulator").joinpath(_FOLDER)
    return sorted(
        each.name.removesuffix(".json")
        for each in folder.iterdir()
        if each.name.endswith(".json") and each.name != "links.json"
    )


def save(profile: Profile, path: Path) -> None:
    """Write it, in the form that `load` reads."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n")
