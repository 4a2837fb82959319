"""Which features a launch turns on, from its arguments and environment: rules as data, for drivers to name.

A rule never guesses: what its arguments do not tell is unknown, and what is unknown does not narrow an advisory.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class FeatureRule(msgspec.Struct, frozen=True, kw_only=True):
    """How one feature shows. Several rules may be about one: the first that can tell decides.

    Attributes:
        feature: Its name.
        arguments: Arguments that tell, by the engine's long names; any of them is enough.
        environment: Variables that tell, as arguments do.
        pattern: What in the value (as JSON where it is not a text) means on; `None`: any value but false, off or 0.
        on: What a value that matches means.
        otherwise: What a value that does not match means; `None`: nothing.
        absent: What it means that none of them is there; `None`: nothing.
    """

    feature: str
    arguments: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    pattern: str | None = None
    on: bool = True
    otherwise: bool | None = False
    absent: bool | None = None

    def tells(self, arguments: Mapping[str, Any], environment: Mapping[str, str]) -> bool | None:
        """On, off, or `None` where this rule cannot tell."""
        values = [arguments[name] for name in self.arguments if name in arguments]
        values += [environment[name] for name in self.environment if name in environment]
        if not values:
            return self.absent
        return self.on if any(map(self._matches, values)) else self.otherwise

    def _matches(self, value: Any) -> bool:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if self.pattern is None:
            return text.strip().lower() not in {"", "0", "false", "off", "no", "null", "none"}
        return re.search(self.pattern, text) is not None


def features_of(
    rules: Sequence[FeatureRule], arguments: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, bool]:
    """The features that the rules can tell; the others are left out."""
    dashed = {name.replace("_", "-"): value for name, value in arguments.items()}
    found: dict[str, bool] = {}
    for rule in rules:
        told = rule.tells(dashed, environment)
        if told is not None:
            found.setdefault(rule.feature, told)
    return found


def _flag(feature: str, *arguments: str) -> FeatureRule:
    return FeatureRule(feature=feature, arguments=arguments, absent=False)


_KV_TRANSFER = ("kv-transfer-config",)
_NO_ASSERTS = FeatureRule(feature="stripped_asserts", environment=("PYTHONOPTIMIZE",), absent=False)

VLLM_FEATURES = (
    # Connectors nest, so that the name counts wherever it is in the value.
    FeatureRule(feature="kv_connector_mooncake", arguments=_KV_TRANSFER, pattern="Mooncake", absent=False),
    FeatureRule(feature="kv_connector_p2p_nccl", arguments=_KV_TRANSFER, pattern="P2pNccl", absent=False),
    FeatureRule(feature="disaggregation", arguments=_KV_TRANSFER, absent=False),
    _flag("prompt_embeds", "enable-prompt-embeds"),
    _flag("trust_remote_code", "trust-remote-code"),
    _flag("scale_out_api", "enable-scale-out", "tokens-only"),
    _flag("speculative_decoding", "speculative-config"),
    FeatureRule(feature="dev_mode", environment=("VLLM_SERVER_DEV_MODE",), absent=False),
    _NO_ASSERTS,
    # Whether a model takes images is in its own configuration; only a launch that forbids them tells.
    FeatureRule(feature="multimodal", arguments=("language-model-only",), on=False, otherwise=None),
    FeatureRule(
        feature="multimodal",
        arguments=("limit-mm-per-prompt",),
        pattern=r'^\s*\{(?=.*"image")(?=.*"video")(?=.*"audio")(\s*"\w+"\s*:\s*0\s*,?)+\}\s*$',
        on=False,
        otherwise=None,
    ),
    FeatureRule(
        feature="video", arguments=("limit-mm-per-prompt",), pattern=r'"video"\s*:\s*0\s*[,}]', on=False, otherwise=None
    ),
)
"""As of vLLM 0.33."""

SGLANG_FEATURES = (
    FeatureRule(
        feature="disaggregation", arguments=("disaggregation-mode",), pattern=r"^(prefill|decode)$", absent=False
    ),
    _flag("trust_remote_code", "trust-remote-code"),
    _flag("dp_attention", "enable-dp-attention"),
    FeatureRule(
        feature="routable_dist_init",
        arguments=("dist-init-addr",),
        pattern=r"^(tcp://)?(127\.|localhost(:|$)|\[?::1\]?(:|$))",
        on=False,
        otherwise=True,
        absent=False,
    ),
    FeatureRule(
        feature="admin_without_keys", arguments=("api-key", "admin-api-key"), on=False, otherwise=True, absent=True
    ),
    _flag("expert_backup", "enable-elastic-expert-backup"),
    _flag("encoder_disaggregation", "encoder-only", "language-only", "encoder-urls"),
    FeatureRule(feature="multimodal", arguments=("enable-multimodal",), otherwise=None),
)

TRTLLM_FEATURES = (
    _flag("trust_remote_code", "trust-remote-code"),
    FeatureRule(feature="disaggregation", arguments=("server-role", "disagg-cluster-uri"), absent=False),
)

LLAMACPP_FEATURES = (
    _flag("rpc", "rpc"),
    _flag("slot_files", "slot-save-path"),
    FeatureRule(feature="multimodal", arguments=("mmproj", "mmproj-url"), absent=False),
)
