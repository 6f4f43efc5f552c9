"""Every metric of the proxy, of the eviction policy and of the observers of engines, as Prometheus sees it.

Names and units follow https://prometheus.io/docs/practices/naming/. `make docs` writes docs/metrics.md from this.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]

SECONDS: Final = {
    "calls": (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    "loads": (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
}
"""Upper bounds of the buckets in seconds: of calls in the proxy, and of loads in the policy."""
OTHERS: Final = "*"  # The label of all models or callers without a separate series. No model has this name.


LABELS: Final = {
    "server": "server of the definition",
    "pool": "pool of the server",
    "replica": "replica of the pool, by host and port",
    "model": f"model, or `{OTHERS}` for all models without a separate series",
    "version": "version of the model",
    "protocol": "`http` or `grpc`",
    "status": "status of HTTP or gRPC",
    "type": "type of the problem (docs/proxy-api.md, Problems)",
    "reason": "reason in one word",
    "principal": "the caller's principal, as in access rules",
    "source": "of a caller: `api-key`, `domino`, or the issuer of its token. Of memory: the source of the reading",
    "part": "of tokens: `prompt` or `completion`",
    "how": "how the response failed: `timeout`, `reset`, or the name of an error",
    "outcome": (
        "of a lease request: `hit` (in memory), `loaded`, `granted`, `busy`, `unknown`, `too-large`, `quarantined`, "
        "`gone` (the caller left). Of a span: its result"
    ),
    "of": (
        "of bytes: `callers`, `strangers` (unauthenticated). Of cuts: `room` (unauthenticated), `held` (too much), "
        "`answer` (not read), `chatter`"
    ),
    "state": "of a model: as in `tidegate status`. Of a breaker: `closed`, `open`, `half-open` (one call tries)",
    "kind": "of bytes: `capacity`, `resident`, `loading`, `freeing`, `leaked`, `free`. Of staged files: `used`, `size`",
    "from": "source of the number",
    "files": "`near` (on the node), `copied` (copied first), `far` (from the volume)",
    "file": "name of the mounted file",
    "issuer": "issuer of tokens",
}
"""The meaning of each label."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. The name has no `_total`, which the client library adds to counters."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...]

    @property
    def series_name(self) -> str:
        """The name in queries. Histograms also have `_bucket`, `_sum` and `_count`."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @property
    def unit(self) -> str:
        """The unit according to the name, or an empty text."""
        units = {"timestamp_seconds": "Unix seconds", "seconds": "seconds", "bytes": "bytes"}
        return next((unit for ending, unit in units.items() if self.name.endswith(f"_{ending}")), "")


def _families(prefix: str, *rows: tuple[str, Kind, str, str]) -> dict[str, Family]:
    """Return families by name. The labels are separated by spaces."""
    return {name: Family(prefix + name, kind, text, tuple(labels.split())) for name, kind, labels, text in rows}


PROXY: Final = _families(
    "tidegate_proxy_",
    ("requests", "counter", "server model protocol status", "Completed inference calls, not readiness or metadata."),
    ("request_seconds", "histogram", "server model protocol", "Duration of inference calls."),
    ("request_bytes", "counter", "server model protocol", "Size of request bodies."),
    ("response_bytes", "counter", "server model protocol", "Size of response bodies."),
    ("in_flight", "gauge", "", "Calls in progress."),
    ("in_flight_limit", "gauge", "", "Limit of calls in progress."),
    ("waiting", "gauge", "", "Calls that wait for a call slot."),
    ("held_bytes", "gauge", "of", "Buffers in use."),
    ("held_limit_bytes", "gauge", "of", "Limit of the buffers."),
    ("cut", "counter", "of", "Connections and calls cut to protect others."),
    ("problems", "counter", "type reason server pool replica", "Calls that the proxy ended itself."),
    ("model_problems", "counter", "server model type reason", "The same by model, if it is known."),
    ("tokens", "counter", "server model source part", "Tokens of calls, if the server reports them."),
    ("models_unnamed", "gauge", "", f"Models counted together as `{OTHERS}`."),
    ("caller_requests", "counter", "principal source protocol status", "Completed calls of all kinds, by caller."),
    ("upstream_errors", "counter", "server how", "Calls without a response."),
    ("lease_acquires", "counter", "server pool outcome", "Responses to lease requests."),
    ("lease_spills", "counter", "server pool", "Calls that tried another replica for a lease."),
    ("lease_wait_seconds", "histogram", "server pool", "Wait of calls for a lease."),
    ("lease_waiting", "gauge", "server pool", "Calls that wait for a lease."),
    ("leases", "gauge", "server pool replica", "Leases in use."),
    ("policy_silent", "gauge", "server pool replica", "1 while an eviction policy does not answer."),
    ("replica_in_flight", "gauge", "server pool replica", "Calls in progress at a replica."),
    ("breaker", "gauge", "server pool replica state", "State of a replica's circuit breaker."),
    ("pool_ready", "gauge", "server pool", "1 while the pool has a usable replica."),
    ("index_seen", "gauge", "server pool replica", "1 while a replica reports its failed loads."),
    ("load_failures", "gauge", "server pool replica", "Versions that a replica could not load."),
    (
        "load_failed_timestamp_seconds", "gauge", "server pool replica model version",
        "Time of the first failure to load a version.",
    ),
    ("spans", "counter", "outcome", "Spans of sampled calls."),
    ("config_generation", "gauge", "file", "Number of times that a new file came into use."),
    ("config_failures", "counter", "file", "Number of times that a file was refused."),
    ("config_good", "gauge", "file", "1 while the current file is in use."),
    ("config_edited", "gauge", "file", "1 while a table differs from the one that was rolled out."),
    ("certificate_expires_timestamp_seconds", "gauge", "", "Expiry of the certificate."),
    ("issuer_keys_trusted_seconds", "gauge", "issuer", "Time for which an issuer's keys are still trusted."),
)  # fmt: skip

EVICTION: Final = _families(
    "tidegate_eviction_",
    ("acquires", "counter", "outcome", "Lease requests. `hit` means that the model was resident."),
    ("busy", "counter", "reason", "Lease requests refused for now."),
    ("refused_messages", "counter", "", "Messages to the lease port refused because of their credential."),
    ("keys_known", "gauge", "", "1 once the policy has the cluster's keys, so that it verifies holders of leases."),
    ("leases", "gauge", "", "Valid leases."),
    ("waiters", "gauge", "", "Callers that wait for a lease."),
    ("load_seconds", "histogram", "", "Duration of successful loads."),
    ("load_failures", "counter", "", "Failed loads."),
    ("unload_failures", "counter", "", "Failed unloads."),
    ("evictions", "counter", "reason", "Unloads begun."),
    ("overruns", "counter", "", "Number of times that models used more than the capacity."),
    ("recycles", "counter", "", "Restarts of the server because of leaked memory."),
    ("policy_failures", "counter", "", "Unusable results of a custom policy."),
    ("triton_losses", "counter", "", "Number of times that the server exited."),
    ("triton_up", "gauge", "", "1 while the policy is connected to the server."),
    ("bytes", "gauge", "kind", "Memory of the slice, by use."),
    ("memory_used_bytes", "gauge", "", "Memory in use, as last measured."),
    ("memory_source", "gauge", "source", "1 for the source of memory readings."),
    ("models", "gauge", "state", "Models in each state."),
    ("model_state", "gauge", "model state", "1 for the state of a model."),
    ("model_footprint_bytes", "gauge", "model from", "Memory that a model needs."),
    ("model_leases", "gauge", "model", "Valid leases on a resident model."),
    ("model_loads", "counter", "model", "Successful loads."),
    ("model_load_failures", "counter", "model", "Failed loads."),
    (
        "model_load_seconds", "gauge", "model",
        "Duration of a model's last load. It survives restarts of the policy.",
    ),
    ("model_evictions", "counter", "model reason", "Unloads begun."),
    ("model_evicted_others", "counter", "model", "Models evicted for this one."),
    ("model_quarantined_timestamp_seconds", "gauge", "model", "Start of a model's quarantine."),
    ("settings_good", "gauge", "", "1 while the current settings file is in use."),
    ("staging_loads", "counter", "files", "Loads, by the place of their files."),
    ("staging_copied_bytes", "counter", "", "Bytes copied near the server."),
    ("staging_bytes", "gauge", "kind", "Size and limit of staged files."),
)  # fmt: skip

ENGINE: Final = _families(
    "tidegate_engine_",
    ("up", "gauge", "", "1 while an engine with the OpenAI API exports its own metrics."),
)
