"""All metrics of the proxy, the eviction policy and containers next to engines, as Prometheus sees them.

Names and units: https://prometheus.io/docs/practices/naming/. docs/metrics.md is generated from this.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]

SECONDS: Final = {
    "calls": (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    "loads": (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
}
"""Upper bounds of the buckets, for durations in the proxy and in the policy."""
OTHERS: Final = "*"  # Label of all models or callers without separate series. It is not a valid name.


LABELS: Final = {
    "server": "server of the definition",
    "pool": "pool of the server",
    "replica": "replica of the pool, by host and port",
    "model": f"model, or `{OTHERS}` for all without separate series",
    "version": "version of the model",
    "protocol": "`http` or `grpc`",
    "status": "status of HTTP or gRPC",
    "type": "type of the [problem](proxy-api.md#problems)",
    "reason": "cause, in one word",
    "principal": "the caller's name in access rules",
    "source": (
        "of a caller: `api-key`, `domino`, or the issuer that authenticated it. Of readings: where memory is read"
    ),
    "part": "of tokens: `prompt` or `completion`",
    "how": "how the response failed: `timeout`, `reset`, or the name of an error",
    "outcome": (
        "of a lease request: `hit` (in memory), `loaded`, `granted`, `busy`, `unknown`, `too-large`, `quarantined`, "
        "`gone` (its caller left). Of a copy or a span: its result"
    ),
    "of": (
        "of bytes: `callers`, `strangers` (unauthenticated). Of ended calls or connections: `room` (unauthenticated, "
        "memory needed), `held` (too much held), `answer` (not read), `chatter`"
    ),
    "state": "of a model: as in `tidegate status`. Of a breaker: `closed`, `open`, `half-open` (one call on trial)",
    "kind": (
        "of bytes: `capacity`, `resident`, `loading`, `freeing`, `leaked`, `free`. Of staged files: `used`, `size`"
    ),
    "from": "source of the value",
    "files": "`near`: on the node. `copied`: copied first. `far`: from the volume",
    "file": "which of the mounted files",
    "issuer": "issuer of tokens",
}
"""The meaning of each label."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name without a counter's `_total`, its kind, description and labels."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...]

    @property
    def series_name(self) -> str:
        """The name for queries. A histogram's has `_bucket`, `_sum` and `_count` after it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @property
    def unit(self) -> str:
        """Its unit, from the name. Only base units occur, and a time is Unix seconds."""
        units = {"timestamp_seconds": "Unix seconds", "seconds": "seconds", "bytes": "bytes"}
        return next((unit for ending, unit in units.items() if self.name.endswith(f"_{ending}")), "")


def _families(prefix: str, *rows: tuple[str, Kind, str, str]) -> dict[str, Family]:
    """Return families by name. Labels are separated by spaces."""
    return {name: Family(prefix + name, kind, text, tuple(labels.split())) for name, kind, labels, text in rows}


PROXY: Final = _families(
    "tidegate_proxy_",
    ("requests", "counter", "server model protocol status", "Ended inference calls, without readiness or metadata."),
    ("request_seconds", "histogram", "server model protocol", "Duration of inference calls."),
    ("request_bytes", "counter", "server model protocol", "Bytes of request bodies."),
    ("response_bytes", "counter", "server model protocol", "Bytes of response bodies."),
    ("in_flight", "gauge", "", "Running calls."),
    ("in_flight_limit", "gauge", "", "Limit of running calls."),
    ("waiting", "gauge", "", "Calls that wait for a slot."),
    ("held_bytes", "gauge", "of", "Bytes that callers make the proxy hold."),
    ("held_limit_bytes", "gauge", "of", "Limit of these bytes."),
    ("cut", "counter", "of", "Calls and connections that were ended to protect others."),
    ("problems", "counter", "type reason server pool replica", "Calls that the proxy ended itself, by cause."),
    ("model_problems", "counter", "server model type reason", "The same by model, if known."),
    ("tokens", "counter", "server model source part", "Tokens of calls, if servers report them."),
    ("models_unnamed", "gauge", "", f"Models that are counted together, as `{OTHERS}`."),
    ("caller_requests", "counter", "principal source protocol status", "Ended calls of all kinds, by caller."),
    ("upstream_errors", "counter", "server how", "Calls without a response."),
    ("lease_acquires", "counter", "server pool outcome", "Responses to lease requests."),
    ("lease_spills", "counter", "server pool", "Calls that requested a lease at another replica."),
    ("lease_wait_seconds", "histogram", "server pool", "Time for which calls waited for a lease."),
    ("lease_waiting", "gauge", "server pool", "Calls that wait for a lease."),
    ("leases", "gauge", "server pool replica", "Held leases."),
    ("policy_silent", "gauge", "server pool replica", "1 while an eviction policy does not respond."),
    ("replica_in_flight", "gauge", "server pool replica", "Calls at a replica."),
    ("breaker", "gauge", "server pool replica state", "State of a replica's circuit breaker."),
    ("pool_ready", "gauge", "server pool", "1 while calls of a pool find a replica."),
    ("index_seen", "gauge", "server pool replica", "1 while a replica reports its failed loads."),
    ("load_failures", "gauge", "server pool replica", "Versions that a replica could not load."),
    (
        "load_failed_timestamp_seconds", "gauge", "server pool replica model version",
        "Unix time since which a version is not loaded.",
    ),
    ("spans", "counter", "outcome", "Spans of sampled calls."),
    ("config_generation", "gauge", "file", "Times that a new version of a file was used."),
    ("config_failures", "counter", "file", "Times that a file was refused."),
    ("config_good", "gauge", "file", "1 while the present version of the file is in use."),
    ("config_edited", "gauge", "file", "1 while a table differs from the rolled-out one."),
    ("certificate_expires_timestamp_seconds", "gauge", "", "Unix time at which the certificate expires."),
    ("issuer_keys_trusted_seconds", "gauge", "issuer", "Time for which an issuer's keys are still trusted."),
)  # fmt: skip

EVICTION: Final = _families(
    "tidegate_eviction_",
    ("acquires", "counter", "outcome", "Lease requests, by outcome. A hit found the model resident."),
    ("busy", "counter", "reason", "Refused lease requests, by cause."),
    ("refused_messages", "counter", "", "Messages to the lease port with a wrong credential."),
    ("keys_known", "gauge", "", "1 once the cluster's keys, which verify lease holders, were read."),
    ("leases", "gauge", "", "Valid leases."),
    ("waiters", "gauge", "", "Callers that wait for a lease."),
    ("load_seconds", "histogram", "", "Duration of successful loads."),
    ("load_failures", "counter", "", "Failed loads."),
    ("unload_failures", "counter", "", "Failed unloads."),
    ("evictions", "counter", "reason", "Unloads begun, by reason."),
    ("overruns", "counter", "", "Times that more was loaded than the capacity."),
    ("recycles", "counter", "", "Restarts of the server because memory was not freed."),
    ("policy_failures", "counter", "", "Times that a custom policy gave no usable result."),
    ("triton_losses", "counter", "", "Times that the server ended."),
    ("triton_up", "gauge", "", "1 while there is a connection to the server."),
    ("bytes", "gauge", "kind", "Bytes of the slice, by use."),
    ("memory_used_bytes", "gauge", "", "Memory in use, as of the last reading."),
    ("memory_source", "gauge", "source", "1 for the source of memory readings."),
    ("models", "gauge", "state", "Models in each state."),
    ("model_state", "gauge", "model state", "1 for the state of a model."),
    ("model_footprint_bytes", "gauge", "model from", "Memory of a model, and the source of the value."),
    ("model_leases", "gauge", "model", "Valid leases on a resident model."),
    ("model_loads", "counter", "model", "Successful loads."),
    ("model_load_failures", "counter", "model", "Failed loads."),
    (
        "model_load_seconds", "gauge", "model",
        "Duration of the last load of a model.",
    ),
    ("model_evictions", "counter", "model reason", "Unloads begun, by reason."),
    ("model_evicted_others", "counter", "model", "Models that were unloaded for this one."),
    ("model_quarantined_timestamp_seconds", "gauge", "model", "Unix time since which a model is not retried."),
    ("settings_good", "gauge", "", "1 while the present version of the settings file is in use."),
    ("staging_loads", "counter", "files", "Loads, by the place of their files."),
    ("staging_copied_bytes", "counter", "", "Bytes that were copied near the server."),
    ("staging_bytes", "gauge", "kind", "Bytes of staged files, and their limit."),
)  # fmt: skip

ENGINE: Final = _families("tidegate_engine_", ("up", "gauge", "", "1 while an engine serves its own metrics."))
