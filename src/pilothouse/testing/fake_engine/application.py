"""The fake engine's routes: who may call them, what they do, and how a script changes it."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from secrets import compare_digest, token_hex
from typing import Any

import msgspec

from pilothouse.testing.fake_engine.answers import plan_answer
from pilothouse.testing.fake_engine.dialects import chat, completions, embeddings, messages, responses
from pilothouse.testing.fake_engine.dialects.base import TextRequest, Writer, decode
from pilothouse.testing.fake_engine.dialects.prompts import Message, chat_tokens
from pilothouse.testing.fake_engine.engine_loop import Engine
from pilothouse.testing.fake_engine.errors import UNAUTHORIZED, RequestRefusedError, bad_request, failure, unknown_model
from pilothouse.testing.fake_engine.http_server import Exchange
from pilothouse.testing.fake_engine.metrics import EngineMetrics
from pilothouse.testing.fake_engine.options import EngineOptions
from pilothouse.testing.fake_engine.prompt_batch import PromptBatch
from pilothouse.testing.fake_engine.scripts import NORMAL, Script, ScriptBook, ScriptOrder, parse_script
from pilothouse.testing.fake_engine.state import EngineState, KvState, SeenRequest
from pilothouse.testing.fake_engine.tokens import TextSource, text_of, tokenize
from pilothouse.testing.fake_engine.turn import Turn

log = logging.getLogger(__name__)

VLLM_VERSION = "0.33.0"
"""The vLLM release whose surface is imitated; what /version says."""
_SCRIPT_HEADER = "x-fake-engine"

Handler = Callable[[Exchange, Script], None]
WriterFactory = Callable[[TextRequest, str, int, str], Writer]


class TokenizeBody(msgspec.Struct, frozen=True):
    """POST /tokenize: a text or a chat."""

    prompt: str | None = None
    messages: list[Message] | None = None


class _Route(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    handle: Handler
    generates: bool = False


class Application:
    """Handles exchanges. `turns` are in work; `quiet` is set while there are none."""

    def __init__(self, options: EngineOptions, engine: Engine, metrics: EngineMetrics) -> None:
        self.options = options
        self.scripts = ScriptBook(options.script)
        self.seen: deque[SeenRequest] = deque(maxlen=options.record_requests)
        self.turns: set[Turn | PromptBatch] = set()
        self.quiet = asyncio.Event()
        self.quiet.set()
        self.requests_total = 0
        self.kv_endpoints: tuple[str | None, str | None] = (None, None)
        self._engine = engine
        self._metrics = metrics
        self._source = TextSource(options.seed)
        self._model = options.served_model_names[0]
        self._started = int(time.time())
        self._instance = token_hex(4)
        self._numbers = count(1)
        self._loop = asyncio.get_running_loop()
        self._authorization = None if options.api_key is None else f"Bearer {options.api_key}".encode()
        self._routes = {
            "/v1/chat/completions": self._text_route(chat.parse, chat.ChatWriter),
            "/v1/completions": self._text_route(completions.parse, completions.CompletionWriter),
            "/v1/responses": self._text_route(responses.parse, responses.ResponsesWriter),
            "/v1/messages": self._text_route(messages.parse, messages.MessagesWriter, anthropic=True),
            "/v1/embeddings": _Route(method="POST", handle=self._embeddings, generates=True),
            "/v1/models": _Route(method="GET", handle=self._models),
            "/health": _Route(method="GET", handle=lambda exchange, script: exchange.respond(200, b"")),
            "/version": _Route(method="GET", handle=lambda exchange, _: _json(exchange, {"version": VLLM_VERSION})),
            "/metrics": _Route(method="GET", handle=self._metrics_text),
            "/tokenize": _Route(method="POST", handle=self._tokenize),
            "/fake/state": _Route(method="GET", handle=lambda exchange, script: _json(exchange, self.state())),
            "/fake/script": _Route(method="POST", handle=self._add_script),
            "/fake/reset": _Route(method="POST", handle=self._reset),
        }

    def handle(self, exchange: Exchange) -> None:
        """One request."""
        request = exchange.request
        self.requests_total += 1
        if self.options.record_requests and not request.path.startswith("/fake/"):
            self.seen.append(
                SeenRequest(
                    method=request.method,
                    path=request.path,
                    query=request.query,
                    headers=tuple(request.headers),
                    body=request.body,
                )
            )
        try:
            self._dispatch(exchange)
        except RequestRefusedError as refusal:
            _refuse(exchange, refusal)
        except Exception:
            log.exception("the fake engine failed at %s %s", request.method, request.path)
            if exchange.head_sent:
                exchange.cut(reset=False)
            else:
                _refuse(exchange, failure())

    def state(self) -> EngineState:
        """What the engine is doing, for assertions."""
        scheduler = self._engine.scheduler
        return EngineState(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            in_flight=len(self.turns),
            finished=dict(scheduler.finished),
            aborted=scheduler.finished["abort"],
            preemptions=scheduler.preemptions,
            prompt_tokens=scheduler.prompt_tokens,
            generation_tokens=scheduler.generation_tokens,
            kv=KvState(
                blocks=scheduler.pool.total,
                used=scheduler.pool.used,
                cached=len(scheduler.pool.remembered),
                events_endpoint=self.kv_endpoints[0],
                replay_endpoint=self.kv_endpoints[1],
            ),
            scripts_waiting=len(self.scripts),
            requests_total=self.requests_total,
            requests=tuple(request.view() for request in self.seen),
        )

    def reset(self) -> None:
        """End what runs, forget scripts, recorded requests and the prefix cache. Counters and metrics go on."""
        for turn in tuple(self.turns):
            turn.cut_short()
        self.scripts.clear()
        self.seen.clear()
        self._engine.scheduler.clear_cache()

    def _dispatch(self, exchange: Exchange) -> None:
        request = exchange.request
        if request.path.startswith("/v1") and not self._authorized(exchange):
            exchange.respond(401, UNAUTHORIZED)
            return
        route = self._routes.get(request.path)
        if route is None:
            raise RequestRefusedError(404, "Not Found")
        if request.method != route.method and not (request.method == "HEAD" and route.method == "GET"):
            raise RequestRefusedError(405, "Method Not Allowed")
        script = self._script_for(exchange, generates=route.generates)
        exchange.shape(script)
        if script.status is not None:
            self._later(script, lambda: _scripted(exchange, script))
        elif route.generates:
            route.handle(exchange, script)
        else:
            self._later(script, lambda: self._guarded(route.handle, exchange, script))

    def _authorized(self, exchange: Exchange) -> bool:
        if self._authorization is None:
            return True
        sent = exchange.request.header("authorization") or ""
        return compare_digest(sent.encode(), self._authorization)

    def _script_for(self, exchange: Exchange, *, generates: bool) -> Script:
        path = exchange.request.path
        if path.startswith("/fake/"):
            return NORMAL
        header = exchange.request.header(_SCRIPT_HEADER) if self.options.scriptable else None
        if header is None:
            return self.scripts.take(path, generates=generates)
        try:
            return parse_script(header)
        except ValueError as error:
            raise bad_request(f"header {_SCRIPT_HEADER}: {error}") from None

    def _later(self, script: Script, act: Callable[[], None]) -> None:
        if script.delay_s:
            self._loop.call_later(script.delay_s, act)
        else:
            act()

    def _guarded(self, handle: Handler, exchange: Exchange, script: Script) -> None:
        try:
            handle(exchange, script)
        except RequestRefusedError as refusal:
            _refuse(exchange, refusal)

    def _text_route(
        self, parse: Callable[[bytes], TextRequest], writer: WriterFactory, *, anthropic: bool = False
    ) -> _Route:
        def handle(exchange: Exchange, script: Script) -> None:
            request = parse(exchange.request.body)
            self._check_model(request.model)
            plans = [
                plan_answer(self._source, self.options, request, script, prompt, choice)
                for prompt in request.prompts
                for choice in range(request.n)
            ]
            turn = Turn(
                exchange,
                request,
                plans,
                writer(request, self._request_id(exchange), int(time.time()), request.model or self._model),
                script,
                self._engine,
                anthropic=anthropic,
                ended=self._turn_ended,
            )
            self._turn_begins(turn)
            turn.start()

        return _Route(method="POST", handle=handle, generates=True)

    def _embeddings(self, exchange: Exchange, script: Script) -> None:
        request = embeddings.parse(exchange.request.body)
        self._check_model(request.model)
        for prompt in request.prompts:
            if len(prompt) > self.options.context_tokens:
                raise bad_request(
                    f"This model's maximum context length is {self.options.context_tokens} tokens. However, your "
                    f"request has {len(prompt)} input tokens. Please reduce the length of the input messages."
                )
        value = embeddings.whole(
            request,
            self._request_id(exchange),
            int(time.time()),
            request.model or self._model,
            self.options.embedding_dimensions,
        )
        body = msgspec.json.encode(value)
        batch = PromptBatch(exchange, request.prompts, body, script, self._engine, ended=self._turn_ended)
        self._turn_begins(batch)
        batch.start()

    def _turn_begins(self, turn: Turn | PromptBatch) -> None:
        self.turns.add(turn)
        self.quiet.clear()

    def _turn_ended(self, turn: Turn | PromptBatch) -> None:
        self.turns.discard(turn)
        if not self.turns:
            self.quiet.set()

    def _models(self, exchange: Exchange, script: Script) -> None:
        models = [
            {
                "id": name,
                "object": "model",
                "created": self._started,
                "owned_by": "vllm",
                "root": self._model,
                "parent": None,
                "max_model_len": self.options.context_tokens,
            }
            for name in self.options.served_model_names
        ]
        _json(exchange, {"object": "list", "data": models})

    def _metrics_text(self, exchange: Exchange, script: Script) -> None:
        text = self._metrics.text(self._engine.scheduler)
        exchange.respond(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _tokenize(self, exchange: Exchange, script: Script) -> None:
        body = decode(exchange.request.body, TokenizeBody)
        if body.messages is not None:
            tokens = chat_tokens(body.messages)
        elif body.prompt is not None:
            tokens = tokenize(body.prompt)
        else:
            raise bad_request("1 validation error: either `prompt` or `messages` is required", "prompt")
        value = {
            "count": len(tokens),
            "max_model_len": self.options.context_tokens,
            "tokens": tokens.tolist(),
            "token_strs": [text_of(token) for token in tokens],
        }
        _json(exchange, value)

    def _add_script(self, exchange: Exchange, script: Script) -> None:
        self._need_scriptable()
        try:
            order = msgspec.json.decode(exchange.request.body, type=ScriptOrder)
        except msgspec.DecodeError as error:
            raise bad_request(f"not a script order: {error}") from None
        self.scripts.add(order)
        _json(exchange, {"scripts_waiting": len(self.scripts)})

    def _reset(self, exchange: Exchange, script: Script) -> None:
        self._need_scriptable()
        self.reset()
        _json(exchange, self.state())

    def _need_scriptable(self) -> None:
        if not self.options.scriptable:
            raise RequestRefusedError(403, "This fake engine was not started with --scriptable.")

    def _check_model(self, model: str | None) -> None:
        if model is not None and model not in self.options.served_model_names:
            raise unknown_model(model)

    def _request_id(self, exchange: Exchange) -> str:
        return exchange.request.header("x-request-id") or f"{self._instance}-{next(self._numbers)}"


def _json(exchange: Exchange, value: Any) -> None:
    exchange.respond(200, msgspec.json.encode(value))


def _refuse(exchange: Exchange, refusal: RequestRefusedError) -> None:
    anthropic = exchange.request.path == "/v1/messages"
    exchange.respond(refusal.status, refusal.body(anthropic=anthropic))


def _scripted(exchange: Exchange, script: Script) -> None:
    status = script.status or 500
    content_type = "application/json"
    if isinstance(script.body, str):
        body, content_type = script.body.encode(), "text/plain; charset=utf-8"
    elif script.body is not None:
        body = msgspec.json.encode(script.body)
    else:
        refusal = failure(status, "The fake engine was told to fail.")
        body = refusal.body(anthropic=exchange.request.path == "/v1/messages")
    exchange.respond(status, body, content_type, script.headers.items())
