"""Paths and methods of the data plane, and what each of them does."""

from typing import TYPE_CHECKING
from urllib.parse import unquote

from pilothouse.gateway import answers
from pilothouse.gateway.candidates import candidates_for
from pilothouse.gateway.exchange import Exchange
from pilothouse.gateway.filtered_exchange import FilteredExchange
from pilothouse.gateway.usage_request import UsageRequest
from pilothouse.model.errors import Refusal
from pilothouse.model.requests import Route
from pilothouse.model.tenants import Scope
from pilothouse.store import tenant_usage as usage
from pilothouse.telemetry.catalogue import NO_MODEL, UNKNOWN_MODEL, Reason
from pilothouse.wire import inference_body, openai
from pilothouse.wire.http1 import Request

if TYPE_CHECKING:
    from pilothouse.gateway.client_connection import ClientConnection

BYTES_PER_TOKEN = 4
"""English text under a byte-pair tokenizer; only weighs load, so a factor of two does no harm."""

EXPECTED_OUTPUT_TOKENS = 256
"""What a turn is taken to generate: near the means of the public chat traces (211 in Azure's, 182 in Mooncake's)."""

_INFERENCE = {route.value.encode(): route for route in Route}
_MODELS = b"/v1/models"
_LIVEZ = b"/livez"
_READYZ = b"/readyz"
_USAGE = usage.PATH.encode()
_READ = (b"GET", b"HEAD")

OTHER_ROUTE = "other"


def _allowed(path: bytes) -> tuple[bytes, ...]:
    """The methods of a path; none if there is nothing at it."""
    if path in _INFERENCE:
        return (b"POST",)
    if path in (_MODELS, _LIVEZ, _READYZ) or _model_id(path):
        return _READ
    if path == _USAGE:
        return (b"GET",)
    return ()


def _model_id(path: bytes) -> str:
    """The name in /v1/models/{id}, which may have slashes; empty if the path is another."""
    prefix = _MODELS + b"/"
    return unquote(path[len(prefix) :].decode("latin-1")) if path.startswith(prefix) else ""


def label(request: Request | None) -> str:
    """The request's route as a metric label: one of a bounded set."""
    if request is None:
        return OTHER_ROUTE
    if request.path in _INFERENCE or request.path in (_MODELS, _LIVEZ, _READYZ, _USAGE):
        return request.path.decode()
    return f"{_MODELS.decode()}/{{id}}" if _model_id(request.path) else OTHER_ROUTE


def check(client: "ClientConnection", request: Request) -> Refusal | None:
    """Whether a request may go on, by its head alone."""
    return _admit(client, request)


def _admit(client: "ClientConnection", request: Request) -> Refusal | None:
    """Why a request goes no further, by its head alone."""
    path, method = request.path, request.method
    allowed = _allowed(path)
    if not allowed:
        shown = path.decode("latin-1")[:200]
        message = f"There is nothing at {shown}. The API's routes begin with /v1, for example /v1/chat/completions."
        return Refusal(code="unknown_url", message=message)
    if method not in allowed:
        names = " or ".join(name.decode() for name in allowed)
        message = f"{path.decode('latin-1')} takes {names}, not {method.decode('latin-1')}."
        return Refusal(code="method_not_allowed", message=message)
    if path in (_LIVEZ, _READYZ):
        return None
    caller = client.authenticate(request)
    if isinstance(caller, Refusal):
        return caller
    if path == _USAGE:
        return caller.may(Scope.USAGE)
    return caller.may(Scope.INFERENCE if path in _INFERENCE else Scope.MODELS)


def dispatch(client: "ClientConnection", request: Request) -> None:
    """Serve one whole request: answer it now, or start an exchange that will."""
    route = _INFERENCE.get(request.path)
    if route is None or request.method != b"POST":
        _serve_other(client, request)
        return
    caller = client.authenticate(request)
    if isinstance(caller, Refusal):
        answers.refuse(client, request, caller, model=NO_MODEL, route=route)
        return
    if not caller.infers:
        refused = caller.may(Scope.INFERENCE)
        assert refused is not None
        answers.refuse(client, request, refused, model=NO_MODEL, route=route)
        return
    body = inference_body.read(request.body, route)
    if isinstance(body, Refusal):
        answers.refuse(client, request, body, model=NO_MODEL, route=route)
        return
    entry = client.plane.table.models.get(body.model)
    if entry is None or not caller.sees(body.model):
        refusal = _model_not_found(body.model)
        answers.refuse(client, request, refusal, model=UNKNOWN_MODEL, route=route)
        return
    candidates = entry.routes.get(route)
    if not candidates or entry.withholds:
        found = candidates_for(entry, body, route)
        if isinstance(found, Refusal):
            answers.refuse(client, request, found, model=body.model, route=route)
            return
        candidates = found
    limit = body.max_output_tokens
    expected = limit if 0 < limit < EXPECTED_OUTPUT_TOKENS else EXPECTED_OUTPUT_TOKENS
    weight = len(body.data) // BYTES_PER_TOKEN + 1 + expected
    filters = None if entry.filters is None else entry.filters.of(caller.tenant_id)
    if filters is None:
        exchange = client.exchange = Exchange(client, request, body, route, candidates, entry, weight)
    else:
        exchange = client.exchange = FilteredExchange(client, request, body, route, candidates, entry, weight, filters)
    exchange.start()


def _serve_other(client: "ClientConnection", request: Request) -> None:
    """What is not inference: a browser's question, the models, health, or a refusal."""
    allowed = _allowed(request.path)
    permission = client.plane.cors.preflight(request, allowed) if allowed else None
    if permission is not None:
        own_id = client.plane.new_request_id()
        answers.count(client, request, own_id, model=NO_MODEL, route=label(request), status=200, reason=Reason.OK)
        answers.answer(client, request, 200, answers.TEXT, b"", own_id=own_id, extra=permission)
        return
    refusal = _admit(client, request)
    if refusal is not None:
        extra = ((b"allow", b", ".join(allowed)),) if refusal.code == "method_not_allowed" else ()
        answers.refuse(client, request, refusal, model=NO_MODEL, route=label(request), extra=extra)
        return
    if request.path == _USAGE:
        question = client.exchange = UsageRequest(client, request, label(request))
        question.start()
        return
    _serve_local(client, request)


def _serve_local(client: "ClientConnection", request: Request) -> None:
    path = request.path
    table = client.plane.table
    status, content_type = 200, answers.JSON
    if path == _LIVEZ:
        content_type, body = answers.TEXT, b"ok\n"
    elif path == _READYZ:
        content_type = answers.TEXT
        status, body = _readiness(client, verbose=b"verbose" in request.query.split(b"&"))
    elif path == _MODELS:
        seen = tuple(model for model in table.snapshot.models if client.sees(model.name))
        body = openai.model_list(seen)
    else:
        entry = table.models.get(_model_id(path))
        if entry is None or not client.sees(entry.view.name):
            refusal = _model_not_found(_model_id(path))
            answers.refuse(client, request, refusal, model=UNKNOWN_MODEL, route=label(request))
            return
        body = openai.model_body(entry.view)
    reason = Reason.OK if status == 200 else "no_ready_replica"
    own_id = client.plane.new_request_id()
    answers.count(client, request, own_id, model=NO_MODEL, route=label(request), status=status, reason=reason)
    answers.answer(client, request, status, content_type, body, own_id=own_id)


def _readiness(client: "ClientConnection", *, verbose: bool) -> tuple[int, bytes]:
    """Ready means: a snapshot is there, every model has a replica to go to, and we are not draining."""
    plane = client.plane
    checks = [("snapshot", plane.table.snapshot.version > 0, f"version {plane.table.snapshot.version}")]
    checks += [
        (f"model {name}", entry.ready_count > 0, f"{entry.ready_count} of {entry.replica_count} replicas")
        for name, entry in plane.table.models.items()
    ]
    checks.append(("accepting", not plane.draining, "draining" if plane.draining else "yes"))
    ready = all(ok for _, ok, _ in checks)
    lines = [f"[{'+' if ok else '-'}]{name} {'ok' if ok else 'failed'}: {detail}" for name, ok, detail in checks]
    text = "\n".join([*lines, ""]) if verbose or not ready else ""
    return (200 if ready else 503), f"{text}{'ok' if ready else 'not ready'}\n".encode()


def _model_not_found(name: str) -> Refusal:
    shown = name if len(name) <= 100 else f"{name[:100]}..."
    message = f"The model `{shown}` does not exist or you do not have access to it."
    return Refusal(code="model_not_found", message=message, param="model")
