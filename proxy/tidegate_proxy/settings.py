"""The typed settings of a proxy, from environment variables, the paths of its files, and its tunables."""

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from tidegate_contracts import proxy_process
from tidegate_contracts.proxy_settings import ProxySettings, variable


@dataclass(frozen=True)
class Layout:
    """A proxy's directories and addresses, by default the contract's. Port 0 is any free one, host "" all addresses."""

    routing: Path = Path(proxy_process.ROUTING_ROOT)
    tls: Path = Path(proxy_process.TLS_ROOT)
    api_keys: Path = Path(proxy_process.API_KEYS_ROOT)
    authorities: Path = Path(proxy_process.AUTHORITIES_ROOT)
    upstream_ca: Path = Path(proxy_process.UPSTREAM_CA_ROOT)
    host: str = ""
    http_port: int = proxy_process.HTTP_PORT
    grpc_port: int = proxy_process.GRPC_PORT
    admin_port: int = proxy_process.ADMIN_PORT
    leases: Path = Path(proxy_process.LEASE_TOKEN_ROOT)


@dataclass(frozen=True)
class Tunables:
    """Intervals, timeouts (in seconds) and limits that are parameters only so that a test can set others."""

    file_seconds: float = 1.0  # Between two reads of a file.
    quiet_seconds: float = 1.0  # After SIGTERM the proxy accepts connections until no request has come for so long.
    hello_seconds: float = 20.0  # Timeout of the TLS handshake.
    head_seconds: float = 20.0  # Timeout of the head of a request.
    linger_seconds: float = 1.0  # Time to read from a caller that still sends after its last response.
    close_seconds: float = 5.0  # A closing connection is cut if its caller reads nothing for this long.
    control_frames: int = 10_000
    """How many frames that move no data an HTTP/2 peer may send within `control_seconds`. These are pings, settings,
    resets, empty frames, and window updates for which nothing was sent."""
    control_seconds: float = 5.0
    avoided_seconds: float = 5.0
    """How long other replicas are preferred to one that reported that it lacks a model. A frontend of Dynamo reports
    that until Kubernetes has noticed the end of its worker."""
    untaken_seconds: float = 60.0  # An older rejection of a long body proves nothing: the server may have been down.
    key_pause_seconds: float = 10.0  # Least seconds between two fetches of an issuer's keys, whatever tokens name.
    alias_seconds: float = 5.0  # After this a call makes the alias be read again, in the background.
    alias_hold_seconds: float = 60.0  # How long an alias that cannot be read again is used. Then it may be old.
    retry_seconds: float = 1.0  # Between two reads of a configuration after a failure, and for sequences.
    export_seconds: float = 1.0  # Between two exports of spans.
    waiting_spans: int = 4096  # Spans that wait for the collector. Beyond, the oldest are dropped and counted.
    span_batch: int = 512  # Spans of one request to the collector.
    check_seconds: float = 0.5  # Between two health checks.
    excused_seconds: float = 10.0  # How long a replica can fail all checks while its gRPC port still responds.
    index_seconds: float = 5.0  # Minimum time between two periodic queries of the index of models.
    index_fresh_seconds: float = 0.5  # Minimum time between two queries if someone is waiting for the result.
    index_wait_seconds: float = 5.0  # How long a request waits for a query before it uses the last result.
    index_timeout_seconds: float = 30.0  # Each doubles the pause, because the listing still continues in the server.
    index_rests: float = 10.0
    """Minimum pause after a query, as a multiple of its duration. A server lists its repository for each query,
    possibly in an object store, and one of its few threads does nothing else meanwhile."""
    unexplained_seconds: float = 120.0  # Servers poll: a version that is not even loading after this has failed.
    rebalance_seconds: float = 1.0  # Between two checks of the leases.
    lease_again_seconds: float = 10.0
    """Time until the next attempt to get a second lease. It is kept for as long, because it had a cause such as a
    failing replica. A model must also have been called for so long before it is loaded at a better replica."""
    spare_seconds: float = 30.0  # Until the next attempt to load a model into spare memory at a better replica.
    heat_seconds: float = 5.0  # Time constant of the averages of a model's load: a shorter burst makes no model hot.
    calm_seconds: float = 60.0  # A hot model loses its second copy if it is calm for so long.


class SettingsError(Exception):
    """Some settings are invalid. The text names one a line."""


def read_settings() -> ProxySettings:
    """Return the settings. Raises SettingsError, which names every invalid, missing or unknown variable."""
    names = {variable(field): field for field in ProxySettings.model_fields}
    given = {name: value for name, value in os.environ.items() if name.startswith(proxy_process.ENVIRONMENT_PREFIX)}
    unknown = given.keys() - names
    problems = [f"{name} is not a setting. Run `python -m tidegate_proxy --help` to list them" for name in unknown]
    try:
        settings = ProxySettings.model_validate({names[name]: value for name, value in given.items() if name in names})
    except ValidationError as error:
        for each in error.errors():
            why = "it is missing" if each["type"] == "missing" else each["msg"]
            problems.append(f"{variable(str(each['loc'][0]))}: {why}")
    if problems:
        raise SettingsError("\n".join(sorted(problems)))
    return settings
