"""A study as one HTML page that needs nothing else: summary, charts, tenants, replicas."""

from collections.abc import Iterable, Sequence
from html import escape

from pilothouse.simulator.charts import bars, lines
from pilothouse.simulator.metrics import Figures
from pilothouse.simulator.study import Estimate, StudyResult, VariantResult

_COLOURS = ("#2f6fde", "#d9662b", "#2c9a63", "#a34fc4", "#c9a227", "#5b6b7b")
_STYLE = (
    """:root{color-scheme:light dark;--ink:#1c2430;--back:#fff;--line:#d5dbe3}
@media(prefers-color-scheme:dark){:root{--ink:#e4e9f0;--back:#14181e;--line:#36404d}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:1400px;
margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
td,th{border-bottom:1px solid var(--line);padding:.3rem .7rem;text-align:right;white-space:nowrap}
td:first-child,th:first-child{text-align:left}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:1rem}
figure{margin:0}figcaption{font-weight:600}figcaption span{font-weight:400;margin-left:1em}
svg{width:100%;height:auto}svg text{font-size:11px;fill:var(--ink)}.grid{stroke:var(--line)}
polyline{fill:none;stroke-width:1.8}.bar{fill:#2f6fde}.warning{border-left:4px solid #d9662b;padding-left:.8rem}
"""
    + "".join(f".s{i}{{stroke:{c}}}.k{i}{{color:{c}}}" for i, c in enumerate(_COLOURS))
    + "\n"
)


def render(result: StudyResult) -> str:
    """The page."""
    body = [f"<h1>Simulation of {escape(result.name)}</h1>"]
    body.append(
        f"<p>Pilothouse {escape(result.pilothouse)}. SLO: first token within {result.slo.ttft_s:g} s, "
        f"{result.slo.tpot_s * 1e3:g} ms between tokens in the mean. "
        "&plusmn; is a 95% confidence interval over seeds.</p>"
    )
    if result.estimates:
        names = ", ".join(map(escape, result.estimates))
        body.append(f'<p class="warning">Estimates, no measurement of this GPU stands behind them: {names}.</p>')
    body.append(_summary(result.variants))
    if len(result.variants) > 1:
        body.append(f'<div class="charts">{"".join(_comparison(result.variants))}</div>')
    for variant in result.variants:
        run = variant.runs[0]
        body.append(f"<h2>{escape(label(variant))}</h2><p>Charts of seed {variant.seeds[0]}.</p>")
        body.append(f'<div class="charts">{"".join(_charts(run))}</div>')
        if run.tenants:
            body.append(_tenants(run))
        if len(run.replicas) <= 64:
            body.append(_replicas(run))
    title = f"Simulation of {escape(result.name)}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body>{''.join(body)}</body></html>\n"
    )


def label(variant: VariantResult) -> str:
    """The swept values of a variant, for people."""
    return ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in variant.values.items()) or "as in the file"


def estimate_text(estimate: Estimate) -> str:
    """A mean, with its interval if there is one."""
    if estimate.plus_minus is None:
        return f"{estimate.mean:.4g}"
    return f"{estimate.mean:.4g} ± {estimate.plus_minus:.2g}"


def _summary(variants: Sequence[VariantResult]) -> str:
    names = list(variants[0].summary)
    rows = [[label(variant), *(estimate_text(variant.summary[name]) for name in names)] for variant in variants]
    return _table(["variant", *names], rows)


def _comparison(variants: Sequence[VariantResult]) -> Iterable[str]:
    for name, words, unit in (
        ("ttft_p99_s", "p99 time to first token", "s"),
        ("slo_attainment", "SLO attainment", "ratio"),
        ("cost", "Cost", "currency"),
    ):
        yield bars(words, [(label(variant), variant.summary[name].mean) for variant in variants], y=unit)


def _charts(run: Figures) -> Iterable[str]:
    windows = run.windows
    yield lines(
        "Time to first token, by arrival",
        [
            ("p50", [(each.start_s, each.ttft_p50_s) for each in windows if each.arrived]),
            ("p99", [(each.start_s, each.ttft_p99_s) for each in windows if each.arrived]),
        ],
        x="time, s",
        y="s",
    )
    yield lines(
        "Turns in the fleet",
        [
            ("waiting for the first token", [(each.start_s, each.waiting) for each in windows]),
            ("answering", [(each.start_s, each.running) for each in windows]),
        ],
        x="time, s",
        y="turns",
    )
    yield bars(
        "Time to first token",
        [(name, getattr(run.ttft_s, name)) for name in ("p50", "p90", "p95", "p99")],
        y="s",
    )
    yield bars(
        "Pause between tokens",
        [(name, getattr(run.token_gap_s, name) * 1e3) for name in ("p50", "p90", "p95", "p99")],
        y="ms",
    )
    yield bars("Utilisation", [(each.replica, each.utilisation) for each in run.replicas], y="ratio")
    if run.tenants:
        yield bars("p99 time to first token by tenant", [(each.tenant, each.ttft_s.p99) for each in run.tenants], y="s")
        yield bars("SLO attainment by tenant", [(each.tenant, each.slo_attainment) for each in run.tenants], y="ratio")


def _tenants(run: Figures) -> str:
    return _table(
        ["tenant", "turns", "served", "tokens", "TTFT p50 s", "TTFT p99 s", "TPOT p50 ms", "SLO attainment"],
        [
            [each.tenant, each.turns, each.served, each.tokens, f"{each.ttft_s.p50:.3f}", f"{each.ttft_s.p99:.3f}",
             f"{each.tpot_s.p50 * 1e3:.1f}", f"{each.slo_attainment:.3f}"]
            for each in run.tenants
        ],
    )  # fmt: skip


def _replicas(run: Figures) -> str:
    return _table(
        ["replica", "pool", "turns", "utilisation", "prefill tokens", "output tokens", "preemptions", "cost"],
        [
            [each.replica, each.pool, each.turns, f"{each.utilisation:.3f}", each.prefill_tokens, each.output_tokens,
             each.preemptions, f"{each.cost:.2f}"]
            for each in run.replicas
        ],
    )  # fmt: skip


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    heads = "".join(f"<th>{escape(each)}</th>" for each in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(each))}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
