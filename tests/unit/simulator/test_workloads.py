import gzip
import itertools
from pathlib import Path

import pytest

from pilothouse.model.units import SECOND
from pilothouse.simulator.chance import Chance, exp, ln
from pilothouse.simulator.turn import Turn
from pilothouse.simulator.workloads import loaders
from pilothouse.simulator.workloads.generators import Synthetic, TenantShare, generate
from pilothouse.simulator.workloads.shaping import between, faster, mixed, multiplied, thinned

FILES = {
    "mooncake": '{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 3000, "input_length": 512, "output_length": 7, "hash_ids": [0]}\n',
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:50.9951690,396,109\n",
    "vtc": "req_time_s,client,prompt_len,output_len\n0.5,3,12,40\n1.25,0,30,1\n",
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n7,GPT-4,10,0,10,Conversation log\n45,ChatGPT,1087,230,1317,API log\n",
    "bailian": '{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 40, "output_length": 3, '
    '"type": "text", "turn": 1, "hash_ids": [9, 8, 7]}\n'
    '{"chat_id": 2, "parent_chat_id": 1, "timestamp": 9.0, "input_length": 70, "output_length": 3, '
    '"type": "text", "turn": 2, "hash_ids": [9, 8, 7, 6, 5]}\n',
    "agentic": '{"trace": "a", "t": 0, "in": 200, "out": 10, "think": 1.0, "hash_ids": [0, 1, 2, 3]}\n'
    '{"trace": "b", "t": 2, "in": 200, "out": 10, "think": 1.0, "hash_ids": [0, 1, 2, 3]}\n',
    "engine-log": '{"request_id": "x", "input_toks": 10, "output_toks": 3, "queued_ts": 100.5}\n'
    '{"request_id": "y", "input_toks": 20, "output_toks": 4, "queued_ts": 102.5}\n',
    "ledger": '{"id": "r1", "tenant": "acme", "at_ns": 5, "input_tokens": 10, "output_tokens": 2, "session": "s"}\n'
    '{"id": "r2", "tenant": "acme", "at_ns": 2000000005, "input_tokens": 10, "output_tokens": 2}\n',
}


@pytest.mark.parametrize("form", sorted(FILES))
def test_every_published_form_is_read(form: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(FILES[form].encode()))
    made = loaders.LOADERS[form][0](path)
    assert len(made) == 2
    assert made[0].arrival_ns <= made[1].arrival_ns
    assert form == "vtc" or made[0].arrival_ns == 0
    assert all(turn.prompt >= 1 and turn.output >= 1 for turn in made)


def test_only_full_units_of_a_prompt_are_cached(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(FILES["mooncake"])
    first, second = loaders.mooncake(path)
    assert first.units == (0, 1)
    assert second.units == (0,)


def test_arrivals_are_spread_inside_their_quantum(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(FILES["mooncake"].splitlines()[0].join(["", "\n"]) * 50)
    made = loaders.mooncake(path, seed=1)
    assert len({turn.arrival_ns for turn in made}) == 50
    assert made[-1].arrival_ns < 3 * SECOND


def test_agents_share_their_tools_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(FILES["agentic"])
    one, other = loaders.agentic(path, shared_prefix_tokens=128)
    assert one.units[:2] == other.units[:2]
    assert not set(one.units[2:]) & set(other.units[2:])


@pytest.mark.parametrize("text", ["{}\n", "not json\n", '{"timestamp": "x"}\n'])
def test_a_wrong_line_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(loaders.TraceInvalid, match="line 1"):
        loaders.mooncake(path)


def test_generated_workloads_have_their_rate_and_repeat() -> None:
    spec = Synthetic(
        rate_per_s=20, duration_s=500, burstiness=3, tenants=(TenantShare(name="a", share=3), TenantShare(name="b"))
    )
    made = list(generate(spec, 1))
    assert 9_000 < len(made) < 11_000
    assert 0.70 < sum(turn.tenant == "a" for turn in made) / len(made) < 0.80
    assert [t.arrival_ns for t in generate(spec, 1)] == [t.arrival_ns for t in made]
    gaps = [b.arrival_ns - a.arrival_ns for a, b in itertools.pairwise(made)]
    mean = sum(gaps) / len(gaps)
    variation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 / mean
    assert 2.6 < variation < 3.4


def test_sessions_repeat_what_was_said() -> None:
    (first, *_) = generate(Synthetic(rate_per_s=1, duration_s=50, turns=3, prefixes=2, prefix_tokens=128), 0)
    assert first.then is not None
    second, think_ns = first.then
    assert second.prompt > first.prompt + first.output
    assert second.units[: len(first.units)] == first.units
    assert think_ns > 0
    assert second.then is not None


def test_shaping() -> None:
    def made() -> list[Turn]:
        return [Turn(str(n), n * SECOND, 10, 5, units=(0, n + 1)) for n in range(10)]

    assert [turn.arrival_ns for turn in faster(made(), 2.0)][-1] == 9 * SECOND // 2
    assert [turn.key for turn in between(made(), 2 * SECOND, 4 * SECOND)] == ["2", "3"]
    copies = list(multiplied(made(), 3))
    assert len(copies) == 30
    assert [turn.arrival_ns for turn in copies] == sorted(turn.arrival_ns for turn in copies)
    assert len({turn.units[1] for turn in copies}) == 30
    assert {turn.units[0] for turn in copies} == {0}
    assert len(list(mixed(made(), made()))) == 20
    assert 0 < len(list(thinned(made(), 0.5))) < 10


def test_the_logarithm_and_its_inverse() -> None:
    import math

    for x in (1e-12, 0.3, 1.0, 2.5, 1e9):
        assert ln(x) == pytest.approx(math.log(x), rel=1e-14, abs=1e-15)
    for x in (-20.0, -0.01, 0.0, 1.0, 30.0):
        assert exp(x) == pytest.approx(math.exp(x), rel=1e-12)
    # The stream itself is fixed: a change would change every simulation.
    assert [Chance(7, "x").below(1_000) for _ in range(1)] == [Chance(7, "x").below(1_000)]
