"""The OpenAPI document: what can be asked, how, and what is answered.

It is written here and not derived from the application, for calls of models are answered without it.
"""

from typing import Any

from tidegate_contracts.openai import LONGEST_SERVED_NAME, SERVED_NAME_PATTERN
from tidegate_contracts.whereabouts import WHEREABOUTS_PATH, Whereabouts

from .kinds import KINDS, ServerKind
from .problems import CONTENT_TYPE, TYPE_ROOT, ProblemType
from .servers import UNAVAILABLE_HEADER
from .targets import NAME_PATTERN, VERSION_PATTERN, Address

_MEDIA = "application/json"
DESCRIPTION = """
The one entry point to every model of an environment. It speaks the KServe v2 protocol over HTTP and gRPC as Triton
does, and takes `POST /predict`. Say who you are by `Authorization: Bearer <token>` or `X-API-Key: <key>`.

Triton's own errors are passed on as they are (`application/json`); the proxy's are problems (RFC 9457).
"""
_Json = dict[str, Any]

_ALWAYS = (
    ProblemType.MALFORMED, ProblemType.METHOD, ProblemType.TOO_LONG, ProblemType.HEADERS, ProblemType.INTERNAL,
    ProblemType.FULL,
)  # fmt: skip
_FOR_CALLS = tuple(ProblemType)
_ONLY_CALLS = {ProblemType.SLOW, ProblemType.RATE_LIMITED, ProblemType.LOAD_FAILED, ProblemType.NEVER_FITS}
_FOR_CALLERS = tuple(problem for problem in ProblemType if problem not in _ONLY_CALLS)
_RETRIED = (ProblemType.RATE_LIMITED, ProblemType.BUSY, ProblemType.FULL)
_TRITON_SAYS = (400, 404, 500, 503)  # Statuses that Triton answers with, besides 200.
_OPEN: _Json = {"security": []}  # What anybody may ask.


def document() -> _Json:
    """Return the whole document."""
    health, whoami, predict = _ref("Health"), _ref("WhoAmI"), {"description": "Triton's"}
    busy, unauthenticated = ProblemType.BUSY, ProblemType.UNAUTHENTICATED
    paths: _Json = {
        "/healthz": {"get": _operation("Whether the proxy runs", health, (), "health") | _OPEN},
        "/readyz": {"get": _operation("Whether the proxy takes requests", health, (busy,), "health") | _OPEN},
        "/whoami": {"get": _operation("As whom the proxy knows you", whoami, (unauthenticated, busy), "access")},
        "/predict": {
            "post": _model_call("/predict", "Call a model in the form of Domino's reference implementation", predict)
            | {"tags": ["predict"], "parameters": _HEADERS}
        },
    }
    for prefix, named in (("", []), ("/servers/{server}", [_SERVER])):
        for path, summary, answer in _SERVER_PATHS:
            is_open = not prefix and path.startswith("/v2/health")
            operation = _operation(summary, answer, () if is_open else _FOR_CALLERS)
            paths[prefix + path] = {"get": operation | {"parameters": named} | (_OPEN if is_open else {})}
        for path, summary, parameters in (("", _MODELS, named), ("/{model}", _MODEL_PLACES, [*named, _SERVED_MODEL])):
            operation = _operation(summary, _ref("Whereabouts"), _FOR_CALLERS, "models")
            paths[f"{prefix}{WHEREABOUTS_PATH}{path}"] = {"get": operation | {"parameters": parameters}}
        for kind in KINDS.values():
            for address in kind.addresses:
                of_model = [_SERVED_MODEL] if "{model}" in address.path else []
                parameters = [*named, *of_model, *(_HEADERS if address.body else [])]
                paths[prefix + address.path] = {address.method: _address(address, kind) | {"parameters": parameters}}
        for version, also in (("", []), ("/versions/{version}", [_VERSION])):
            for tail, method, summary, answer in _MODEL_PATHS:
                operation = _model_call(tail, summary, answer, method)
                path = f"{prefix}/v2/models/{{model}}{version}{tail}"
                paths[path] = {method: operation | {"parameters": [*named, _MODEL, *also, *_HEADERS]}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidegate inference proxy", "description": DESCRIPTION, "version": "1"},
        "security": [{"token": []}, {"apiKey": []}, {"dominoKey": []}],
        "paths": paths,
        "components": {"schemas": _SCHEMAS, "securitySchemes": _SCHEMES},
    }


def _ref(name: str) -> _Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(
    summary: str, answer: _Json | None, problems: tuple[ProblemType, ...], tag: str = "KServe v2", media: str = _MEDIA
) -> _Json:
    responses: _Json = {"200": {"description": "Done"} | ({"content": {media: {"schema": answer}}} if answer else {})}
    for problem in sorted({*_ALWAYS, *problems}, key=lambda each: each.status):
        told: _Json = {"description": problem.title, "content": {CONTENT_TYPE: {"schema": _ref("Problem")}}}
        if problem in _RETRIED:
            told["headers"] = {"Retry-After": {"description": "Seconds", "schema": {"type": "integer", "minimum": 1}}}
        if (other := responses.get(str(problem.status))) is not None:
            told["description"] = f"{other['description']}; or: {problem.title}"
        responses[str(problem.status)] = told
    return {"summary": summary, "tags": [tag], "responses": responses}


def _model_call(tail: str, summary: str, answer: _Json, method: str = "post") -> _Json:
    """Return an operation that Triton answers, with errors of its own too."""
    media = "text/event-stream" if tail == "/generate_stream" else _MEDIA
    made = _operation(summary, answer, _FOR_CALLS, media=media)
    responses = made["responses"]
    if tail == "/ready":  # Triton says it by the status alone
        responses["400"] = {"description": "It takes none, or the request cannot be understood"}
        return made
    for status in _TRITON_SAYS:
        responses[str(status)]["content"][_MEDIA] = {"schema": _ref("TritonError")}
    if method == "post":
        made["requestBody"] = {"required": True, "content": {_MEDIA: {"schema": _BODIES.get(tail, _object())}}}
        version = {"description": "Version that was chosen", "schema": _TEXT}
        responses["200"]["headers"] = {"tidegate-model-version": version}
    if tail == "/infer":
        said = "As JSON, or as JSON and then the tensors' bytes; it goes on to the server as it is."
        binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        made["requestBody"]["description"] = said
        made["requestBody"]["content"] |= binary
        responses["200"]["content"] |= binary
    return made


def _address(address: Address, kind: ServerKind) -> _Json:
    """Return an operation of a kind of server with a protocol of its own, in which problems are told, too."""
    made = _operation(address.summary, _object(), _FOR_CALLS if address.body else _FOR_CALLERS, tag=kind.root[1:])
    for status, said in made["responses"].items():
        if status != "200":
            said["content"] = {_MEDIA: {"schema": _object()}}
    if address.body is not None:
        made["responses"]["200"]["content"]["text/event-stream"] = {"schema": {}}
        made["responses"]["default"] = {"description": "An error of the server's own"}
        made["requestBody"] = {"required": True, "content": {_MEDIA: {"schema": address.body}}}
    return made


def _in(place: str, name: str, schema: _Json, description: str) -> _Json:
    return {"name": name, "in": place, "required": place == "path", "description": description, "schema": schema}


def _object(required: str = "", texts: str = "", **properties: _Json) -> _Json:
    """Return the schema of an object: names of properties that are never left out, of those that are text, others."""
    listed = {"required": required.split()} if required else {}
    properties = dict.fromkeys(texts.split(), _TEXT) | properties
    return {"type": "object"} | listed | ({"properties": properties} if properties else {})


def _list_of(items: _Json) -> _Json:
    return {"type": "array", "items": items}


def _like(pattern: str) -> _Json:
    return {"type": "string", "pattern": f"^{pattern}$"}


def _said(description: str) -> _Json:
    return {"type": "string", "description": description}


_TEXT = {"type": "string"}
_TEXTS, _OBJECTS = _list_of(_TEXT), _list_of(_object())
_SERVER = _in("path", "server", _like(NAME_PATTERN), "Server that has the model")
_MODEL = _in("path", "model", _like(NAME_PATTERN), "Model")
_SERVED = _like(SERVED_NAME_PATTERN) | {"maxLength": LONGEST_SERVED_NAME}
_SERVED_MODEL = _in("path", "model", _SERVED, "Model, by its own name or another that calls have")
_VERSION = _in("path", "version", _like(VERSION_PATTERN), "Version; by the traffic's shares without it")
_WORD = _like("[0-9A-Za-z._-]{1,128}")
_HEADERS = [
    _in("header", "X-Request-Id", _WORD, "Comes back in the answer and in the proxy's log"),
    _in(
        "header", "Request-Timeout", {"type": "number", "minimum": 1}, "Seconds that you wait; the proxy's own at most"
    ),
    _in("header", "Tidegate-Sticky", _WORD, "Requests with the same value get the same version"),
]
_BODIES = {"/infer": _ref("InferRequest"), "/predict": _ref("PredictRequest")}
_DATA = {"description": "Left out where the bytes follow the JSON", "type": "array"}
_SHAPE = _list_of({"type": "integer"})
_TENSOR = _object("name shape datatype", "name datatype", shape=_SHAPE, parameters=_object(), data=_DATA)
_OUTPUT = _object("name", "name", parameters=_object())
_STATED_VERSION = [
    _like(f"({VERSION_PATTERN})?"),
    {"type": "integer", "minimum": 1, "maximum": 10**16 - 1},
    {"type": "null"},
]
_MODELS = "Where each model is that you may inspect: state, since when, why not, versions in memory; at each replica"
_MODEL_PLACES = "The same of one model"
_PROBLEM_TYPES = [TYPE_ROOT + problem.word for problem in ProblemType]
_WHEREABOUTS_SCHEMA = Whereabouts.model_json_schema(ref_template="#/components/schemas/{model}")
_SCHEMAS: _Json = {
    **_WHEREABOUTS_SCHEMA.pop("$defs"),
    "Whereabouts": _WHEREABOUTS_SCHEMA,
    "Health": _object("status", "status"),
    "WhoAmI": _object(
        "environment principal groups source",
        environment=_said("Name of the environment that the proxy serves"),
        principal=_said("Your name in access rules"),
        groups=_TEXTS | {"description": "Your groups in access rules"},
        source=_said("Who vouches: URL of an issuer, `api-keys` or `domino`"),
    )
    | {"additionalProperties": False},
    "Problem": _object(
        "type title status detail requestId error",
        "title requestId",
        type={"enum": _PROBLEM_TYPES, "description": "Stable: programs may rely on it"},
        status={"type": "integer"},
        detail=_said("What happened, and what to do"),
        error=_said("The detail again, where clients of Triton look for it"),
        reason=_said("Why it is busy, in one word"),
        retryAfterSeconds={"type": "number"},
    )
    | {"description": "RFC 9457"},
    "TritonError": _object("error", "error"),
    "PredictRequest": _object(
        "inference_server_name model_name payload",
        inference_server_name=_said("Server that has the model"),
        model_name=_said("Model to call"),
        model_version={"description": "Version; by the traffic's shares without it", "anyOf": _STATED_VERSION},
        payload={"description": "Body of a v2 inference request; it goes on to the server as it is"},
    ),
    "InferRequest": _object("inputs", "id", parameters=_object(), inputs=_list_of(_TENSOR), outputs=_list_of(_OUTPUT))
    | {"description": "KServe v2"},
    "InferAnswer": _object(
        "model_name outputs", "id model_name model_version", parameters=_object(), outputs=_list_of(_TENSOR)
    ),
    "ServerMetadata": _object("name version extensions", "name version", extensions=_TEXTS),
    "ModelMetadata": _object(
        "name platform inputs outputs", "name platform", versions=_TEXTS, inputs=_OBJECTS, outputs=_OBJECTS
    ),
    "Statistics": _object("model_stats", model_stats=_OBJECTS),
}
_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "Of an issuer that the environment trusts"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "dominoKey": {"type": "apiKey", "in": "header", "name": "X-Domino-Api-Key"},
}
_STATISTICS = (
    f"Statistics of the models that you may inspect; the header {UNAVAILABLE_HEADER} names pools that gave none"
)
_SERVER_PATHS = [
    ("/v2/health/live", "Whether the server is alive", None),
    ("/v2/health/ready", "Whether the server takes requests", None),
    ("/v2", "Metadata of the server", _ref("ServerMetadata")),
    ("/v2/models/stats", _STATISTICS, _ref("Statistics")),
]
_MODEL_PATHS: list[tuple[str, str, str, _Json]] = [
    ("", "get", "Metadata of a model", _ref("ModelMetadata")),
    ("/ready", "get", "Whether a model takes requests", {}),
    ("/config", "get", "Configuration of a model", _object()),
    ("/stats", "get", "Statistics of a model", _ref("Statistics")),
    ("/infer", "post", "Call a model", _ref("InferAnswer")),
    ("/generate", "post", "Call a model with plain JSON", _object()),
    (
        "/generate_stream",
        "post",
        "Call a model with plain JSON; its answers come as server-sent events",
        _object(data=_said("JSON, as of generate")),
    ),
]
