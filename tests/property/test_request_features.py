"""Whatever a client sends, looking for features ends in an answer or in an error that is foreseen."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.wire.request_features import RECOGNISED, features_used

WORDS = st.sampled_from(
    ["type", "text", "content", "image_url", "video", "messages", "input", "tools", "tool_choice", "strict", "function",
     "response_format", "format", "tool_use", "guided_json", "auto", "x"]
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=12,
)


def used(body: dict[str, object]) -> frozenset[str]:
    return features_used(msgspec.json.decode(msgspec.json.encode(body), type=dict[str, msgspec.Raw]))


@given(st.dictionaries(WORDS, values, max_size=5))
def test_any_body_has_an_answer(body: dict[str, object]) -> None:
    assert used(body) <= RECOGNISED


@given(values, st.sampled_from(["image_url", "video_url", "pdf"]))
def test_a_part_that_is_no_text_is_found_wherever_it_is(around: object, kind: str) -> None:
    content = [around, {"type": "tool_result", "content": [{"type": kind}]}]
    assert "multimodal" in used({"messages": [{"role": "user", "content": content}]})
