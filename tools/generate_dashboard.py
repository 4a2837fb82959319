"""Write docs/reference/grafana-dashboard.json from the metrics there are. Import it into Grafana as it is."""

import json
from pathlib import Path
from typing import Any

from pilothouse.telemetry import catalogue
from pilothouse.telemetry.catalogue import MetricSpec

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "grafana-dashboard.json"

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_MODEL = 'model=~"$model"'
_PANEL_HEIGHT, _PANEL_WIDTH, _ACROSS = 8, 8, 3


def _rate(spec: MetricSpec, by: str, labels: str = _MODEL) -> str:
    return f"sum by ({by}) (rate({spec.name}{{{labels}}}[$__rate_interval]))"


def _quantile(spec: MetricSpec, share: float) -> str:
    rates = f"sum by (le, model) (rate({spec.name}_bucket{{{_MODEL}}}[$__rate_interval]))"
    return f"histogram_quantile({share}, {rates})"


def _gauge(spec: MetricSpec, by: str, labels: str = _MODEL) -> str:
    return f"sum by ({by}) ({spec.name}{{{labels}}})"


def _latency(spec: MetricSpec) -> list[tuple[str, str]]:
    return [(_quantile(spec, share), f"{{{{model}}}} p{share * 100:g}") for share in (0.5, 0.95, 0.99)]


FAILED = f'{_MODEL}, reason!~"ok|client_disconnected"'

PANELS: tuple[tuple[str, str, list[tuple[str, str]]], ...] = (
    ("Requests", "reqps", [(_rate(catalogue.REQUESTS, "model"), "{{model}}")]),
    ("Failed requests", "reqps", [(_rate(catalogue.REQUESTS, "code, reason", FAILED), "{{code}} {{reason}}")]),
    ("Tokens", "short", [(_rate(catalogue.TOKENS, "model, kind"), "{{model}} {{kind}}")]),
    ("Time to first token", "s", _latency(catalogue.TIME_TO_FIRST_TOKEN)),
    ("Inter-token latency", "s", _latency(catalogue.INTER_TOKEN_LATENCY)),
    ("Request duration", "s", _latency(catalogue.REQUEST_DURATION)),
    ("The gateway's own overhead", "s", _latency(catalogue.OVERHEAD)),
    ("Requests in flight", "short", [(_gauge(catalogue.IN_FLIGHT_REQUESTS, "replica"), "{{replica}}")]),
    ("Tokens in flight", "short", [(_gauge(catalogue.IN_FLIGHT_TOKENS, "replica"), "{{replica}}")]),
    ("KV cache in use", "percentunit", [(_gauge(catalogue.ENGINE_KV_USAGE, "replica"), "{{replica}}")]),
    (
        "Requests in the engines",
        "short",
        [
            (_gauge(catalogue.ENGINE_REQUESTS_RUNNING, "replica"), "{{replica}} running"),
            (_gauge(catalogue.ENGINE_REQUESTS_WAITING, "replica"), "{{replica}} waiting"),
        ],
    ),
    ("Replicas by state", "short", [(_gauge(catalogue.REPLICA_STATE, "state", ""), "{{state}}")]),
    ("Restarts of replicas", "short", [(f"increase({catalogue.REPLICA_RESTARTS.name}[1h])", "{{replica}}")]),
    ("Retries", "reqps", [(_rate(catalogue.UPSTREAM_RETRIES, "reason"), "{{reason}}")]),
    ("Clients that left", "reqps", [(_rate(catalogue.CLIENT_DISCONNECTS, "phase"), "{{phase}}")]),
    (
        "Connections",
        "short",
        [
            (f"sum({catalogue.CONNECTIONS.name})", "clients"),
            (f"sum({catalogue.UPSTREAM_CONNECTIONS.name})", "replicas"),
        ],
    ),
)


def render() -> str:
    """The dashboard as JSON."""
    return json.dumps(dashboard(), indent=2) + "\n"


def dashboard() -> dict[str, Any]:
    """The dashboard: three panels across, and a choice of models on top."""
    models = f"label_values({catalogue.REQUESTS.name}, model)"
    return {
        "title": "Pilothouse fleet",
        "uid": "pilothouse-fleet",
        "schemaVersion": 39,
        "tags": ["pilothouse"],
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "model",
                    "label": "Model",
                    "type": "query",
                    "datasource": DATASOURCE,
                    "definition": models,
                    "query": {"query": models, "refId": "models"},
                    "refresh": 2,
                    "includeAll": True,
                    "multi": True,
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": [_panel(index, *panel) for index, panel in enumerate(PANELS)],
    }


def _panel(index: int, title: str, unit: str, queries: list[tuple[str, str]]) -> dict[str, Any]:
    row, column = divmod(index, _ACROSS)
    return {
        "id": index + 1,
        "title": title,
        "type": "timeseries",
        "datasource": DATASOURCE,
        "gridPos": {
            "h": _PANEL_HEIGHT,
            "w": _PANEL_WIDTH,
            "x": column * _PANEL_WIDTH,
            "y": row * _PANEL_HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": DATASOURCE, "expr": expression, "legendFormat": legend}
            for number, (expression, legend) in enumerate(queries)
        ],
    }


if __name__ == "__main__":
    PAGE.write_text(render())
