"""Any server that speaks the OpenAI API and that somebody else runs: a hosted API, or an engine outside this fleet."""

import urllib.parse
from typing import Any, ClassVar

from pilothouse.config.addresses import check_upstream_url
from pilothouse.config.problems import Problem, nearest_name
from pilothouse.engines import reserved
from pilothouse.engines.base import Driver, ProbeSpec
from pilothouse.model.fleet import Endpoint
from pilothouse.model.requests import Route
from pilothouse.model.spec import DeploymentSpec

_ROUTES_ARGUMENT = "routes"
_DEFAULT_ROUTES = (Route.CHAT_COMPLETIONS, Route.COMPLETIONS, Route.EMBEDDINGS)


class OpenAIDriver(Driver):
    """`engine: openai` with `upstream: {url, model, api_key}`. It launches nothing.

    Which engine is behind the URL is not known, so what any of them reserves is reserved. `engine.args.routes` lists
    the paths the server speaks where they are others than chat completions, completions and embeddings.

    The probe asks for the list of models, which costs nothing; a server without such a list, or one that limits how
    often it is asked, has answered and is taken to be ready.
    """

    name: ClassVar[str] = "openai"
    launches_process: ClassVar[bool] = False
    reserved_headers: ClassVar[tuple[str, ...]] = tuple(
        sorted(
            {
                *reserved.HOSTED_HEADERS,
                *reserved.ROUTER_HEADERS,
                *reserved.VLLM_HEADERS,
                *reserved.SGLANG_HEADERS,
                *reserved.LLAMACPP_HEADERS,
            }
        )
    )
    reserved_fields: ClassVar[tuple[str, ...]] = tuple(
        sorted(
            {
                *reserved.HOSTED_FIELDS,
                *reserved.VLLM_FIELDS,
                *reserved.SGLANG_FIELDS,
                *reserved.LLAMACPP_FIELDS,
            }
        )
    )
    readiness: ClassVar[ProbeSpec] = ProbeSpec(
        path="/v1/models", ready=frozenset({200, 404, 405, 429}), loading=frozenset({503})
    )

    def routes(self, deployment: DeploymentSpec) -> tuple[Route, ...]:
        """The three that nearly all such servers speak, or what `engine.args.routes` lists."""
        listed = deployment.engine.args.get(_ROUTES_ARGUMENT)
        return _DEFAULT_ROUTES if listed is None else tuple(Route(path) for path in listed)

    def check(self, deployment: DeploymentSpec) -> list[Problem]:
        """The URL's form, and the few arguments there are."""
        problems = []
        if deployment.upstream is None:
            problems.append(Problem(path=("upstream",), message="the openai engine needs upstream.url"))
        else:
            problems += _check_url(deployment.upstream.url)
            problems += _check_key(deployment.upstream.api_key)
        if deployment.weights is not None:
            problems.append(Problem(path=("weights",), message="the openai engine has its weights elsewhere"))
        if deployment.engine.version is not None:
            problems.append(
                Problem(path=("engine", "version"), message="the version of a server that others run cannot be pinned")
            )
        for name, value in deployment.engine.args.items():
            problems += _check_argument(name, value)
        return problems

    def installed_version(self) -> str | None:
        """`None`: it runs elsewhere."""
        return None

    def served_model(self, deployment: DeploymentSpec) -> str | None:
        """`upstream.model`, the name by which the server knows it."""
        return deployment.upstream.model if deployment.upstream else None

    def endpoint(self, deployment: DeploymentSpec, *, host: str = "", port: int = 0, api_key: str = "") -> Endpoint:
        """The upstream's own host, port and key; the arguments, which tell of a launched process, are not used.

        Our routes begin with `/v1`, so a URL that ends in it is taken without.
        """
        if deployment.upstream is None:
            raise ValueError(f"{deployment.name} has no upstream")
        url = urllib.parse.urlsplit(deployment.upstream.url)
        tls = url.scheme == "https"
        key = deployment.upstream.api_key
        return Endpoint(
            host=url.hostname or "",
            port=url.port or (443 if tls else 80),
            tls=tls,
            base_path=url.path.rstrip("/").removesuffix("/v1"),
            authorization=f"Bearer {key}" if key else None,
        )


def _check_url(text: str) -> list[Problem]:
    try:
        check_upstream_url(text)
    except ValueError as error:
        return [Problem(path=("upstream", "url"), message=str(error))]
    return []


def _check_key(key: str | None) -> list[Problem]:
    if key is None or (key and _fits_a_header(key)):
        return []
    message = "the key is empty, or has characters that a header cannot carry"  # the key itself is never shown
    return [Problem(path=("upstream", "api_key"), message=message)]


def _fits_a_header(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _check_argument(name: str, value: Any) -> list[Problem]:
    path = ("engine", "args", name)
    if name != _ROUTES_ARGUMENT:
        return [
            Problem(
                path=path, message="not an argument of the openai engine", suggestion=nearest_name(name, ["routes"])
            )
        ]
    known = [str(route) for route in Route]
    if not isinstance(value, list | tuple) or not value:
        return [Problem(path=path, message=f"must be a list of paths, of {', '.join(known)}")]
    return [
        Problem(path=(*path, index), message=f"not a route: {each!r}", suggestion=nearest_name(str(each), known))
        for index, each in enumerate(value)
        if each not in known
    ]
