"""The public conversation trace through every policy: hit rates, balance, and nothing of ours below round robin."""

from benchmarks.bars.report import Bar, main, tell
from benchmarks.routing_replay import bound, find_trace, lines, read, replay, table
from pilothouse.policy.affinity.scores import DEFAULT_POLICY, USES_PREFIX

OF_BOUND = 0.95
AIM = 0.97
IMBALANCE = 1.05
SEEDS = (1, 2, 3, 4, 5)
"""Of the arrivals inside the trace's ticks and of the ties; the worst counts."""


def measure() -> list[Bar]:
    """Replay the trace."""
    path = find_trace()
    arrivals = read(path)
    outcomes = table(arrivals)
    shown = lines(outcomes)
    tell("\n".join(shown))
    bars = []
    for replicas in (8, 16):
        runs = []
        for seed in SEEDS:
            spread = read(path, seed)
            runs.append(replay(spread, DEFAULT_POLICY, replicas, 5_000, bound(spread), seed=seed))
        worst = min(run.of_bound for run in runs)
        best = max(run.of_bound for run in runs)
        uneven = max(run.imbalance for run in runs)
        bars.append(
            Bar(
                name=f"replay, {replicas} x 5,000 blocks: share of the infinite cache's hits",
                limit=f">= {OF_BOUND:.0%} (aim {AIM:.0%})",
                measured=f"{worst:.1%} to {best:.1%} over {len(SEEDS)} seeds",
                passed=worst >= OF_BOUND,
                details={"table": shown},
            )
        )
        bars.append(
            Bar(
                name=f"replay, {replicas} x 5,000 blocks: max/mean uncached work",
                limit=f"<= {IMBALANCE}",
                measured=f"{uneven:.3f}",
                passed=uneven <= IMBALANCE,
            )
        )
    margins = {}
    for size, listed in outcomes.items():
        by_policy = {outcome.policy: outcome.hit for outcome in listed}
        plain = by_policy["round-robin"]
        margins[size] = min((by_policy[policy] / plain, policy) for policy in USES_PREFIX)
    least, policy = min(margins.values())
    bars.append(
        Bar(
            name="replay: affinity policies against round robin, every size",
            limit="none below",
            measured=f"least {least:.2f} times ({policy})",
            passed=least >= 1,
        )
    )
    return bars


if __name__ == "__main__":
    main("routing", measure())
