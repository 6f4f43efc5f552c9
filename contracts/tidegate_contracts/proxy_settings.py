"""The proxy's settings outside mounted files: environment variables, named after the fields."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from .message import Message
from .proxy_process import AMBIGUOUS_PATH, ENVIRONMENT_PREFIX, PATH_PATTERN

ONE_CALLERS_SHARE = 9 / 64
"""Largest share of the proxy's memory that one caller can make it hold, in bodies that must be complete."""
Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
LogLevel = Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(str.lower)]


def _unambiguous(path: str) -> str:
    if re.search(AMBIGUOUS_PATH, path):
        raise ValueError("the proxy's own addresses begin like this")
    return path


class ProxySettings(Message):
    """Times are seconds. The variable of `body_limit_bytes` is `TIDEGATE_PROXY_BODY_LIMIT_BYTES`, and so on."""

    model_config = ConfigDict(loc_by_alias=False)

    environment: str
    replicas_host: str
    """Headless Service whose addresses are the proxy's replicas. Each enforces its share of the rate limits."""
    body_limit_bytes: Positive
    concurrency: Positive
    memory_bytes: Positive | None = None
    """Memory limit of the process. Default: its container's limit."""
    connect_timeout_seconds: Positive
    request_timeout_seconds: Positive
    drain_seconds: Count
    log_level: LogLevel
    tls: bool  # Whether a certificate for HTTPS is mounted at `proxy_process.TLS_ROOT`.
    api_keys: bool  # Whether hashes of API keys are mounted at `proxy_process.API_KEYS_ROOT`.
    authorities: bool = False  # Whether private authorities are mounted at `proxy_process.AUTHORITIES_ROOT`.
    path: Annotated[str, Field(pattern=PATH_PATTERN), AfterValidator(_unambiguous)] = "/"
    """Path below which it is exposed over HTTP. It answers there as at `/`."""
    metrics_models: Count = 1000
    """Models with names in metrics: those that are called first. The others are counted together, as `*`."""
    metrics_callers: Count = 0
    """Callers with names in metrics, likewise. With 0, calls are not counted by caller."""
    domino_principal_url: str | None = None
    otlp_endpoint: Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")] | None = None
    """Base address of an OpenTelemetry collector that accepts OTLP over HTTP. Without it there are no spans."""
    trace_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Percentage of sampled calls among those without a traceparent. A traceparent decides for its own call."""


def variable(field: str) -> str:
    """Return the environment variable of a setting. A boolean is `true` or `false`."""
    if field not in ProxySettings.model_fields:
        raise KeyError(field)
    return f"{ENVIRONMENT_PREFIX}{field.upper()}"
