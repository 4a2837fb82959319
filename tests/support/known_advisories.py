"""The known advisories up to 2026-11-26: versions inside and outside each bound, and what each needs to bite.

Written from the advisories' own words and not from the shipped snapshot, so that one checks the other.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """One advisory.

    `inside` are versions just within its bounds, `outside` those just beyond a bound where it is clear, `unknown` those
    of which nothing is known. `needs` are the features that must all be on.
    """

    id: str
    package: str
    inside: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


_MOONCAKE, _P2P = ("kv_connector_mooncake",), ("kv_connector_p2p_nccl",)
_EMBEDS, _MULTIMODAL, _VIDEO, _RPC = ("prompt_embeds",), ("multimodal",), ("video",), ("rpc",)
_V, _S, _T, _L = "vllm", "sglang", "tensorrt-llm", "llama.cpp"
_ANY_V, _ANY_S, _ANY_L = ("0.1.0", "0.33.0"), ("0.1.0", "0.5.23"), ("b1", "b12700")

ROWS = (
    # vLLM
    Row("CVE-2025-29783", _V, ("0.6.5", "0.7.3"), ("0.6.4.post1", "0.8.0"), needs=_MOONCAKE),
    Row("CVE-2025-32444", _V, ("0.6.5", "0.8.4"), ("0.6.4", "0.8.5", "0.8.5.post1"), needs=_MOONCAKE),
    Row("CVE-2025-46722", _V, ("0.1.0", "0.7.0", "0.8.5.post1"), ("0.9.0",), needs=_MULTIMODAL),
    Row("CVE-2025-62164", _V, unknown=_ANY_V, needs=_EMBEDS),
    Row("CVE-2026-56340", _V, ("0.10.2", "0.12.0"), ("0.10.1.1", "0.13.0"), needs=_EMBEDS),
    Row("CVE-2026-22807", _V, ("0.10.1", "0.13.0"), ("0.10.0", "0.14.0")),
    Row("CVE-2026-22778", _V, ("0.8.3", "0.14.0"), ("0.8.2", "0.14.1"), needs=_MULTIMODAL),
    Row("CVE-2026-27893", _V, ("0.10.1", "0.17.1"), ("0.10.0", "0.18.0")),
    Row("CVE-2026-34756", _V, ("0.1.0", "0.18.1"), ("0.0.9", "0.19.0")),
    Row("PYSEC-2026-145", _V, ("0.18.0", "0.19.1"), ("0.17.1", "0.20.0"), needs=("speculative_decoding",)),
    Row("CVE-2026-48746", _V, ("0.3.0", "0.21.0"), ("0.2.7", "0.22.0")),
    Row("CVE-2026-47155", _V, ("0.0.1", "0.21.0"), ("0.22.0",)),
    Row("CVE-2026-41523", _V, ("0.0.1", "0.21.0"), ("0.22.0",), needs=("stripped_asserts",)),
    Row("PYSEC-2026-2303", _V, ("0.12.0", "0.23.0"), ("0.11.2", "0.24.0"), needs=_EMBEDS),
    Row("CVE-2026-116176", _V, ("0.9.2", "0.23.0"), ("0.9.1", "0.24.0"), needs=_P2P),
    Row("CVE-2026-94627", _V, ("0.0.1", "0.29.0"), unknown=("0.29.0.post1", "0.30.0"), needs=_MOONCAKE),
    Row("PYSEC-2026-4000", _V, ("0.0.1", "0.29.0"), ("0.30.0",)),
    Row("CVE-2026-105754", _V, ("0.0.1", "0.29.0"), ("0.30.0",), needs=_MULTIMODAL),
    Row("PYSEC-2026-4353", _V, ("0.0.1", "0.20.0", "0.29.0"), ("0.30.0",), needs=("scale_out_api",)),
    Row("CVE-2026-105757", _V, ("0.0.1", "0.29.0"), ("0.30.0",), needs=("structured_output",)),
    Row("CVE-2026-105758", _V, ("0.24.0", "0.29.0"), ("0.23.0", "0.30.0"), needs=_VIDEO),
    Row("CVE-2026-105760", _V, ("0.0.1", "0.29.0"), ("0.30.0",), needs=_VIDEO),
    Row("PYSEC-2026-4325", _V, ("0.0.1", "0.29.0"), ("0.30.0",), needs=("rust_frontend",)),
    Row("CVE-2026-114053", _V, ("0.7.3", "0.30.0"), ("0.7.2", "0.31.0"), needs=("trust_remote_code",)),
    Row("CVE-2026-115911", _V, ("0.19.0", "0.31.0"), ("0.18.1", "0.32.0")),
    Row("PYSEC-2026-4349", _V, ("0.16.0", "0.31.0"), ("0.15.1", "0.32.0")),
    Row("CVE-2026-115912", _V, unknown=_ANY_V, needs=_MULTIMODAL),
    Row("CVE-2026-9540", _V, ("0.19.0",), unknown=("0.18.1", "0.19.1")),
    Row("CVE-2026-105775", _V, unknown=_ANY_V),
    Row("CVE-2026-44223", _V, ("0.18.0", "0.19.1"), ("0.17.1",), unknown=("0.20.0",)),
    # SGLang
    Row("CVE-2025-10164", _S, unknown=_ANY_S),
    # Its CVE record names 0.5.10 alone, which the others call fixed: the union counts.
    Row("CVE-2026-3059", _S, ("0.0.1", "0.5.9.post2", "0.5.10"), needs=_MULTIMODAL),
    Row("CVE-2026-3060", _S, ("0.0.1", "0.5.9.post2"), ("0.5.10",), needs=("encoder_disaggregation",)),
    Row("CVE-2026-3989", _S, unknown=_ANY_S),
    Row("CVE-2026-7301", _S, ("0.5.10",), unknown=("0.5.9", "0.5.11"), needs=_MULTIMODAL),
    Row("CVE-2026-14890", _S, ("0.0.1", "0.5.14"), unknown=("0.5.15",), needs=("expert_backup",)),
    Row("CVE-2026-93088", _S, ("0.5.11", "0.5.14"), ("0.5.10",), ("0.5.15",), needs=("diffusion_disaggregation",)),
    Row("CVE-2026-15969", _S, ("0.0.1", "0.5.15"), unknown=("0.5.16",)),
    Row("CVE-2026-15976", _S, ("0.0.1", "0.5.15"), unknown=("0.5.16",)),
    Row("CVE-2026-86793", _S, ("0.0.1", "0.5.18"), unknown=("0.5.19",), needs=("admin_without_keys",)),
    Row("CVE-2026-93034", _S, ("0.0.1", "0.5.20"), unknown=("0.5.23",), needs=("dp_attention", "routable_dist_init")),
    Row("CVE-2026-111392", _S, ("0.5.13", "0.5.21"), ("0.5.12",), ("0.5.22",), needs=_MULTIMODAL),
    Row("CVE-2026-110807", _S, unknown=_ANY_S),
    Row("CVE-2026-110809", _S, unknown=_ANY_S),
    # TensorRT-LLM
    Row("CVE-2025-23254", _T, ("0.0.1", "0.18.1", "v0.18.2rc1"), ("0.18.2", "v0.18.2")),
    Row("CVE-2025-33255", _T, ("0.0.1", "v1.2rc3", "1.1.0"), ("1.2", "v1.2.0")),
    Row("CVE-2026-24142", _T, ("0.0.1", "v1.2rc3", "1.1.0"), ("1.2", "v1.2.0")),
    Row("NVIDIA-5805", _T, ("1.2", "1.3.0rc1"), ("1.3.0rc2", "v1.3.0")),
    Row("NVIDIA-5840", _T, unknown=("1.0", "1.3.0")),
    Row("CVE-2026-65119", _T, ("1.3.0rc24", "v1.3.0rc24"), unknown=("1.3.0rc23", "1.3.0")),
    # llama.cpp
    Row("CVE-2024-21802", _L, unknown=_ANY_L),
    Row("CVE-2024-23605", _L, unknown=_ANY_L),
    Row("CVE-2026-33298", _L, unknown=_ANY_L),
    Row("CVE-2026-34159", _L, unknown=_ANY_L, needs=_RPC),
    Row("CVE-2026-43629", _L, ("b4882", "9058"), ("b4881",), ("b9059",), needs=("slot_files",)),
    Row("CVE-2026-107183", _L, ("b8227", "b11392"), ("b8226", "b11393", "b11434")),
    Row("CVE-2026-118375", _L, ("b8841", "b11434", "11434.0.0", "b11864"), ("b8840", "b11865"), needs=_RPC),
    Row("CVE-2026-137567", _L, ("b11450", "b12657"), ("b11434", "b11449", "b12658"), needs=_RPC),
    # In the path of a fleet
    Row("CVE-2023-48022", "ray", unknown=("2.0.0", "2.56.0")),
    Row("CVE-2023-48023", "ray", unknown=("2.0.0", "2.56.0")),
    Row("CVE-2023-6019", "ray", ("2.8.0",), ("2.8.1",)),
    Row("CVE-2025-62593", "ray", ("2.51.2",), ("2.52.0",)),
    Row("CVE-2026-103764", "mooncake", ("0.3.12",), ("0.3.13",)),
    Row("CVE-2026-90919", "lightllm", unknown=("1.0.0",)),
    Row("CVE-2026-42208", "litellm", unknown=("1.80.0", "1.90.0")),
    Row("PYSEC-2026-2", "litellm", ("1.82.7", "1.82.8"), ("1.82.6", "1.82.9")),
    Row("PYSEC-2026-3", "telnyx", unknown=("1.0.0",)),
    Row("CVE-2026-32597", "PyJWT", ("2.11.0",), ("2.12.0",)),
    Row("CVE-2026-48524", "PyJWT", unknown=("2.11.0", "2.12.0")),
    Row("CVE-2026-27962", "Authlib", ("1.6.8",), ("1.6.9",)),
    Row("CVE-2026-22815", "aiohttp", ("3.13.3",), ("3.13.4",)),
    Row("CVE-2026-34525", "aiohttp", ("3.13.3",), ("3.13.4",)),
)

ALIASES = (
    ("CVE-2025-29783", "GHSA-x3m8-f7g5-qhm7"),
    ("CVE-2025-32444", "GHSA-hj4w-hm2g-p6w5", "PYSEC-2025-42"),
    ("CVE-2025-46722", "GHSA-c65p-x677-fgj6", "PYSEC-2025-43"),
    ("CVE-2026-56340", "GHSA-mcmc-2m55-j8jj", "PYSEC-2026-250"),
    ("CVE-2026-22807", "GHSA-2pc9-4j83-qjmr"),
    ("CVE-2026-27893", "GHSA-7972-pg2x-xr59", "PYSEC-2026-2297"),
    ("CVE-2026-34756", "GHSA-3mwp-wvh9-7528", "PYSEC-2026-2298"),
    ("CVE-2026-47155", "GHSA-3ww4-5jv9-j5gm", "PYSEC-2026-2301"),
    ("CVE-2026-41523", "GHSA-q8gq-377p-jq3r", "PYSEC-2026-2300"),
    ("CVE-2026-105754", "GHSA-ph72-cqr5-qpp7"),
    ("CVE-2026-105757", "GHSA-85xf-c7hm-whqw", "PYSEC-2026-4199"),
    ("CVE-2026-105758", "GHSA-x6mc-67gf-chw4"),
    ("CVE-2026-105760", "GHSA-58v5-2m8f-94pr"),
    ("CVE-2026-115911", "GHSA-542m-9234-8gvf", "PYSEC-2026-4344"),
    ("CVE-2026-115912", "GHSA-6757-hggm-hp2w"),
    ("CVE-2026-3059", "GHSA-rgq9-fqf5-fv58", "PYSEC-2026-539"),
    ("CVE-2026-3060", "GHSA-jx93-g359-86wm", "PYSEC-2026-537"),
    ("CVE-2026-15969", "GHSA-2wvm-gjg7-5jfm"),
    ("CVE-2026-15976", "GHSA-wf98-gv64-5wrf"),
    ("CVE-2026-34159", "GHSA-j8rj-fmpv-wcxw"),
    ("CVE-2025-62593", "GHSA-q279-jhrf-cc6v"),
)
"""The ids of one flaw, where there are several."""
