"""How `pilothouse top` shows a fleet's activity."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pilothouse.cli.activity import Activity, ModelActivity
from pilothouse.cli.status import replica_table


def view(activity: Activity) -> Group:
    """The whole picture: a headline, the models, the replicas."""
    return Group(_headline(activity), Text(""), _models(activity.models), Text(""), replica_table(activity.replicas))


def _headline(activity: Activity) -> Text:
    state = Text("ready", "green") if activity.ready else Text("not ready", "yellow")
    requests = sum(model.requests_per_s for model in activity.models)
    tokens = sum(model.output_tokens_per_s for model in activity.models)
    return Text.assemble(
        Text(f"fleet {activity.fleet}", "bold"),
        ": ",
        state,
        f", {activity.workers} worker{'' if activity.workers == 1 else 's'}, {activity.connections:.0f} connections, "
        f"{requests:.1f} requests/s, {tokens:.0f} tokens/s (over {activity.interval_s:.1f} s)",
    )


def _models(models: tuple[ModelActivity, ...]) -> Table:
    shown = Table("model", box=None, pad_edge=False, header_style="bold")
    for name in ("req/s", "failed/s", "busy", "in tok/s", "out tok/s"):
        shown.add_column(name, justify="right")
    for name in ("first token p50", "p95", "per token p50", "whole p50", "p95"):
        shown.add_column(name, justify="right")
    for each in models:
        shown.add_row(
            each.model,
            f"{each.requests_per_s:.1f}",
            Text(f"{each.failed_per_s:.1f}", style="red" if each.failed_per_s else ""),
            f"{each.in_flight:.0f}",
            f"{each.input_tokens_per_s:.0f}",
            f"{each.output_tokens_per_s:.0f}",
            _time(each.first_token_p50_s),
            _time(each.first_token_p95_s),
            _time(each.inter_token_p50_s),
            _time(each.duration_p50_s),
            _time(each.duration_p95_s),
        )
    return shown


def _time(seconds: float | None) -> str:
    """Three digits that matter: 3.42 ms, 120 ms, 1.52 s."""
    if seconds is None:
        return ""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
