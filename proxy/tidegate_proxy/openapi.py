"""The OpenAPI document: what can be asked, how, and what is answered.

It is written here and not derived from the application, for calls of models are answered without it.
"""

from typing import Any

from .problems import CONTENT_TYPE, TYPE_ROOT, Kind
from .servers import UNAVAILABLE_HEADER
from .targets import NAME_PATTERN, VERSION_PATTERN

DESCRIPTION = """
The one door to every model of an environment. It speaks the KServe v2 protocol over HTTP and gRPC as Triton does, and
takes `POST /predict`. Say who you are by `Authorization: Bearer <token>` or `X-API-Key: <key>`.

Triton's own errors are passed on as they are (`application/json`); the proxy's are problems (RFC 9457).
"""
_Json = dict[str, Any]

_EVERYWHERE = (Kind.MALFORMED, Kind.METHOD, Kind.TOO_LONG, Kind.HEADERS, Kind.INTERNAL)
_FOR_CALLERS = (Kind.UNAUTHENTICATED, Kind.DENIED, Kind.UNKNOWN, Kind.UPSTREAM, Kind.BUSY, Kind.DEADLINE)
_WHOAMI = (Kind.UNAUTHENTICATED, Kind.BUSY)
_FOR_CALLS = (Kind.SLOW, Kind.RATE_LIMITED, Kind.LOAD_FAILED, Kind.NEVER_FITS)
_RETRIED = (Kind.RATE_LIMITED, Kind.BUSY)
_TRITON_SAYS = (400, 404, 500, 503)
"""Statuses that Triton answers with, besides 200."""


def document() -> _Json:
    """Return the whole document."""
    paths: _Json = {
        "/healthz": {"get": _open("Whether the proxy runs", _ref("Health"), "health")},
        "/readyz": {"get": _open("Whether the proxy takes requests", _ref("Health"), "health", Kind.BUSY)},
        "/whoami": {"get": _operation("As whom the proxy knows you", _ref("WhoAmI"), _WHOAMI) | {"tags": ["access"]}},
        "/predict": {"post": _predict()},
    }
    for prefix, named in (("", []), ("/servers/{server}", [_SERVER])):
        for path, summary, answer in _SERVER_PATHS:
            if not prefix and path.startswith("/v2/health"):
                operation = _open(summary, answer, "KServe v2")
            else:
                operation = _operation(summary, answer, _FOR_CALLERS)
            paths[prefix + path] = {"get": operation | _parameters(named)}
        for version, also in (("", []), ("/versions/{version}", [_VERSION])):
            for tail, method, summary, answer in _MODEL_PATHS:
                operation = _model_call(method, summary, answer, tail)
                path = f"{prefix}/v2/models/{{model}}{version}{tail}"
                paths[path] = {method: operation | _parameters([*named, _MODEL, *also, *_HEADERS])}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidegate inference proxy", "description": DESCRIPTION, "version": "1"},
        "security": [{"token": []}, {"apiKey": []}, {"dominoKey": []}],
        "paths": paths,
        "components": {"schemas": _SCHEMAS, "securitySchemes": _SCHEMES},
    }


def _ref(name: str) -> _Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _parameters(parameters: list[_Json]) -> _Json:
    return {"parameters": parameters} if parameters else {}


def _open(summary: str, answer: _Json | None, tag: str, *problems: Kind) -> _Json:
    """Return what anybody may ask."""
    return _operation(summary, answer, problems) | {"tags": [tag], "security": []}


def _operation(
    summary: str, answer: _Json | None, problems: tuple[Kind, ...], media: str = "application/json"
) -> _Json:
    responses: _Json = {"200": {"description": "Done"} | ({"content": {media: {"schema": answer}}} if answer else {})}
    for kind in sorted((*_EVERYWHERE, *problems), key=lambda each: each.status):
        told: _Json = {"description": kind.title, "content": {CONTENT_TYPE: {"schema": _ref("Problem")}}}
        if kind in _RETRIED:
            told["headers"] = {"Retry-After": {"description": "Seconds", "schema": {"type": "integer", "minimum": 1}}}
        responses[str(kind.status)] = told
    return {"summary": summary, "tags": ["KServe v2"], "responses": responses}


def _call(summary: str, answer: _Json | None, media: str = "application/json") -> _Json:
    """Return an operation that Triton answers, with errors of its own too."""
    made = _operation(summary, answer, (*_FOR_CALLERS, *_FOR_CALLS), media)
    for status in _TRITON_SAYS:
        made["responses"][str(status)]["content"]["application/json"] = {"schema": _ref("TritonError")}
    return made


def _model_call(method: str, summary: str, answer: _Json | None, tail: str) -> _Json:
    if tail == "/ready":  # Triton says it by the status alone
        made = _operation(summary, None, (*_FOR_CALLERS, *_FOR_CALLS))
        made["responses"]["400"] = {"description": "It takes none, or the request cannot be understood"}
        return made
    made = _call(summary, answer, "text/event-stream" if tail == "/generate_stream" else "application/json")
    if tail == "/infer":
        binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        made["requestBody"] = {
            "description": "As JSON, or as JSON and then the tensors' bytes; it goes on to the server as it is.",
            "required": True,
            "content": {"application/json": {"schema": _ref("InferRequest")}} | binary,
        }
        made["responses"]["200"]["content"] |= binary
    elif method == "post":
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
    if method == "post":
        made["responses"]["200"]["headers"] = {
            "tidegate-model-version": {"description": "Version that was chosen", "schema": {"type": "string"}}
        }
    return made


def _predict() -> _Json:
    made = _call("Call a model in the form of Domino's reference implementation", {"description": "Triton's"})
    made["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref("PredictRequest")}}}
    return made | {"tags": ["predict"]} | _parameters(_HEADERS)


def _in_path(name: str, pattern: str, description: str) -> _Json:
    schema = {"type": "string", "pattern": f"^{pattern}$"}
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _header(name: str, schema: _Json, description: str) -> _Json:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


_SERVER = _in_path("server", NAME_PATTERN, "Server that has the model")
_MODEL = _in_path("model", NAME_PATTERN, "Model")
_VERSION = _in_path("version", VERSION_PATTERN, "Version; by the traffic's shares without it")
_WORD = {"type": "string", "pattern": "^[0-9A-Za-z._-]{1,128}$"}
_HEADERS = [
    _header("X-Request-Id", _WORD, "Comes back in the answer and in the proxy's log"),
    _header("Request-Timeout", {"type": "number", "minimum": 1}, "Seconds that you wait; the proxy's own at most"),
    _header("Tidegate-Sticky", _WORD, "Requests with the same value get the same version"),
]


def _object(required: str = "", **properties: _Json) -> _Json:
    """Return the schema of an object with these properties; `required` names those that are never left out."""
    listed = {"required": required.split()} if required else {}
    return {"type": "object"} | listed | ({"properties": properties} if properties else {})


def _list_of(items: _Json) -> _Json:
    return {"type": "array", "items": items}


def _said(description: str, **schema: Any) -> _Json:
    return {"type": "string", "description": description} | schema


_TEXT = {"type": "string"}
_EVENT = _object(data=_said("JSON, as of generate"))
_TENSOR = _object(
    "name shape datatype",
    name=_TEXT,
    shape=_list_of({"type": "integer"}),
    datatype=_TEXT,
    parameters=_object(),
    data={"description": "Left out where the bytes follow the JSON", "type": "array"},
)
_STATED_VERSION = [
    {"type": "string", "pattern": f"^({VERSION_PATTERN})?$"},
    {"type": "integer", "minimum": 1, "maximum": 10**16 - 1},
    {"type": "null"},
]
_SCHEMAS: _Json = {
    "Health": _object("status", status=_TEXT),
    "WhoAmI": _object(
        "environment principal groups source",
        environment=_said("Name of the environment that the proxy serves"),
        principal=_said("Your name in access rules"),
        groups=_list_of(_TEXT) | {"description": "Your groups in access rules"},
        source=_said("Who vouches: URL of an issuer, `api-keys` or `domino`"),
    )
    | {"additionalProperties": False},
    "Problem": _object(
        "type title status detail requestId error",
        type={"enum": [TYPE_ROOT + kind.word for kind in Kind], "description": "Stable: programs may rely on it"},
        title=_TEXT,
        status={"type": "integer"},
        detail=_said("What happened, and what to do"),
        requestId=_TEXT,
        error=_said("The detail again, where clients of Triton look for it"),
        retryAfterSeconds={"type": "number"},
    )
    | {"description": "RFC 9457"},
    "TritonError": _object("error", error=_TEXT),
    "PredictRequest": _object(
        "inference_server_name model_name payload",
        inference_server_name=_said("Server that has the model"),
        model_name=_said("Model to call"),
        model_version={"description": "Version; by the traffic's shares without it", "anyOf": _STATED_VERSION},
        payload={"description": "Body of a v2 inference request; it goes on to the server as it is"},
    ),
    "InferRequest": _object(
        "inputs",
        id=_TEXT,
        parameters=_object(),
        inputs=_list_of(_TENSOR),
        outputs=_list_of(_object("name", name=_TEXT, parameters=_object())),
    )
    | {"description": "KServe v2"},
    "InferAnswer": _object(
        "model_name outputs",
        id=_TEXT,
        model_name=_TEXT,
        model_version=_TEXT,
        parameters=_object(),
        outputs=_list_of(_TENSOR),
    ),
    "ServerMetadata": _object("name version extensions", name=_TEXT, version=_TEXT, extensions=_list_of(_TEXT)),
    "ModelMetadata": _object(
        "name platform inputs outputs",
        name=_TEXT,
        platform=_TEXT,
        versions=_list_of(_TEXT),
        inputs=_list_of(_object()),
        outputs=_list_of(_object()),
    ),
    "Statistics": _object("model_stats", model_stats=_list_of(_object())),
}
_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "Of an issuer that the environment trusts"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "dominoKey": {"type": "apiKey", "in": "header", "name": "X-Domino-Api-Key"},
}
_SERVER_PATHS = [
    ("/v2/health/live", "Whether the server is alive", None),
    ("/v2/health/ready", "Whether the server takes requests", None),
    ("/v2", "Metadata of the server", _ref("ServerMetadata")),
    (
        "/v2/models/stats",
        f"Statistics of the models that you may inspect; the header {UNAVAILABLE_HEADER} names pools that gave none",
        _ref("Statistics"),
    ),
]
_MODEL_PATHS: list[tuple[str, str, str, _Json]] = [
    ("", "get", "Metadata of a model", _ref("ModelMetadata")),
    ("/ready", "get", "Whether a model takes requests", {}),
    ("/config", "get", "Configuration of a model", _object()),
    ("/stats", "get", "Statistics of a model", _ref("Statistics")),
    ("/infer", "post", "Call a model", _ref("InferAnswer")),
    ("/generate", "post", "Call a model with plain JSON", _object()),
    ("/generate_stream", "post", "Call a model with plain JSON; its answers come as server-sent events", _EVENT),
]
