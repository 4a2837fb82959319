"""Asks engines how they are: probes, and their own gauges. Never runs a model, and never waits without an end."""

import asyncio
from collections.abc import Mapping

import httpx2
import msgspec

from pilothouse.engines.base import Driver, EngineGauge
from pilothouse.model.fleet import Endpoint
from pilothouse.model.spec import DeploymentSpec
from pilothouse.wire import metrics_text

PROBE_TIMEOUT_S = 5.0  # a busy engine's HTTP thread may wait for its interpreter lock; half of Kubernetes' period
SCRAPE_TIMEOUT_S = 2.0
_MAX_BODY_BYTES = metrics_text.MAX_TEXT_BYTES


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe found. `detail` is empty when all is well."""

    ready: bool
    listening: bool
    detail: str = ""


class EngineClient:
    """GETs to replicas, each on a connection of its own: a kept one says nothing about who listens now."""

    def __init__(self) -> None:
        self._http = httpx2.AsyncClient(
            follow_redirects=False,
            trust_env=False,
            timeout=None,  # each use is within an asyncio.timeout, which covers name resolution and slow bodies too
            limits=httpx2.Limits(max_keepalive_connections=0),
        )

    async def close(self) -> None:
        """Give the sockets back."""
        await self._http.aclose()

    async def probe(self, driver: Driver, endpoint: Endpoint) -> ProbeResult:
        """Whether the engine at `endpoint` can serve. Never raises for what the network or the engine does."""
        spec = driver.readiness
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                status, _ = await self._get(endpoint, spec.path, body=False)
        except TimeoutError:
            return ProbeResult(ready=False, listening=False, detail=f"no answer within {PROBE_TIMEOUT_S:g} s")
        except (httpx2.HTTPError, OSError) as error:
            return ProbeResult(ready=False, listening=False, detail=str(error) or type(error).__name__)
        if status in spec.ready:
            return ProbeResult(ready=True, listening=True)
        detail = "loading" if status in spec.loading else f"GET {spec.path} was answered with {status}"
        return ProbeResult(ready=False, listening=True, detail=detail)

    async def gauges(
        self, driver: Driver, deployment: DeploymentSpec, endpoint: Endpoint
    ) -> Mapping[EngineGauge, float]:
        """The engine's own gauges, as far as it tells them now. Never raises, as `probe`."""
        found: dict[EngineGauge, float] = {}
        try:
            async with asyncio.timeout(SCRAPE_TIMEOUT_S):
                if driver.metrics_path is not None:
                    status, body = await self._get(endpoint, driver.metrics_path)
                    if status == 200:
                        found.update(driver.read_metrics(metrics_text.samples(body)))
                if driver.state_path is not None:
                    status, body = await self._get(endpoint, driver.state_path)
                    if status == 200:
                        found.update(driver.read_state(deployment, body))
        except (TimeoutError, httpx2.HTTPError, OSError):
            pass  # what has been read holds; the probe tells whether something is wrong
        return found

    async def _get(self, endpoint: Endpoint, path: str, *, body: bool = True) -> tuple[int, bytes]:
        """Status and body; a body that is too large is cut, and not read at all if it is not wanted."""
        scheme = "https" if endpoint.tls else "http"
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        url = f"{scheme}://{host}:{endpoint.port}{endpoint.base_path}{path}"
        headers = {"authorization": endpoint.authorization} if endpoint.authorization else {}
        content = bytearray()
        async with self._http.stream("GET", url, headers=headers) as response:
            if body:
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > _MAX_BODY_BYTES:
                        break
        return response.status_code, bytes(content)
