"""Every metric of the proxy, of the eviction policy and of what stands beside engines, as Prometheus sees it.

Names and units: https://prometheus.io/docs/practices/naming/. docs/metrics.md is written from this.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]

SECONDS: Final = {
    "calls": (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    "loads": (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
}
"""Upper bounds of the buckets: what the proxy measures, and what the policy does."""
OTHERS: Final = "*"  # Label of all models or callers that have no series of their own; none is called so.


LABELS: Final = {
    "server": "server of the definition",
    "pool": "pool of the server",
    "replica": "replica of the pool, by host and port",
    "model": f"model; `{OTHERS}`: all that have no series of their own",
    "version": "version of the model",
    "protocol": "`http` or `grpc`",
    "status": "status of HTTP or gRPC that was met",
    "type": "type of the problem: docs/proxy-api.md, Problems",
    "reason": "why, in one word",
    "principal": "who calls, as access rules name him",
    "source": (
        "of a caller: `api-key`, `domino`, or the issuer that vouches for him; of readings: where memory is read"
    ),
    "part": "of tokens: `prompt` or `completion`",
    "how": "how the answer failed: `timeout`, `reset`, or the name of an error",
    "outcome": (
        "of a lease that was asked for: `hit` (it was in memory), `loaded`, `granted`, `busy`, `unknown`, `too-large`, "
        "`quarantined`, `gone` (its caller left); of a copy, or of a span, what came of it"
    ),
    "of": (
        "of bytes: `callers`, `strangers`; of what was ended so that others go on: `room` (of strangers), `held` (too "
        "much), `answer` (not taken), `chatter`"
    ),
    "state": ("of a model: as `tidegate status` has it; of a breaker: `closed`, `open`, `half-open` (one call tries)"),
    "kind": (
        "of bytes: `capacity`, `resident`, `loading`, `freeing`, `leaked`, `free`; of staged files: `used`, `size`"
    ),
    "from": "how it is known",
    "files": "`near`: on the node; `copied`: copied first; `far`: from the volume",
    "file": "which of the mounted files",
    "issuer": "issuer of tokens",
}
"""What each label says."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name as it is written, but for a counter's `_total`, what it is, and its labels."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...]

    @property
    def series_name(self) -> str:
        """The name that a query says; a histogram's has `_bucket`, `_sum` and `_count` after it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @property
    def unit(self) -> str:
        """Its unit, by the name: base units only; a time is Unix seconds."""
        units = {"timestamp_seconds": "Unix seconds", "seconds": "seconds", "bytes": "bytes"}
        return next((unit for ending, unit in units.items() if self.name.endswith(f"_{ending}")), "")


def _families(prefix: str, *rows: tuple[str, Kind, str, str]) -> dict[str, Family]:
    """Return families by name; labels have spaces between."""
    return {name: Family(prefix + name, kind, text, tuple(labels.split())) for name, kind, labels, text in rows}


PROXY: Final = _families(
    "tidegate_proxy_",
    ("requests", "counter", "server model protocol status", "Inference calls that ended; not readiness or metadata."),
    ("request_seconds", "histogram", "server model protocol", "Seconds that inference calls took."),
    ("request_bytes", "counter", "server model protocol", "Bytes of request bodies."),
    ("response_bytes", "counter", "server model protocol", "Bytes of answers' bodies."),
    ("in_flight", "gauge", "", "Calls that are worked on."),
    ("in_flight_limit", "gauge", "", "Calls that may be worked on at once."),
    ("waiting", "gauge", "", "Calls that wait for a place."),
    ("held_bytes", "gauge", "of", "Bytes that callers make the proxy hold."),
    ("held_limit_bytes", "gauge", "of", "Bytes that they may make it hold."),
    ("cut", "counter", "of", "What was ended so that others go on."),
    ("problems", "counter", "type reason server pool replica", "Calls the proxy ended itself, and why."),
    ("model_problems", "counter", "server model type reason", "The same by model, where it is known."),
    ("tokens", "counter", "server model source part", "Tokens that calls used, where servers tell that."),
    ("models_unnamed", "gauge", "", f"Models that are counted together, as `{OTHERS}`."),
    ("caller_requests", "counter", "principal source protocol status", "Calls of all kinds that ended, by caller."),
    ("upstream_errors", "counter", "server how", "Calls without an answer."),
    ("lease_acquires", "counter", "server pool outcome", "Answers to requests for leases."),
    ("lease_spills", "counter", "server pool", "Calls that asked another replica for a lease."),
    ("lease_wait_seconds", "histogram", "server pool", "Seconds that calls waited for a lease."),
    ("lease_waiting", "gauge", "server pool", "Calls that wait for a lease."),
    ("leases", "gauge", "server pool replica", "Leases that are held."),
    ("policy_silent", "gauge", "server pool replica", "1 while an eviction policy gives no answer."),
    ("replica_in_flight", "gauge", "server pool replica", "Calls at a replica."),
    ("breaker", "gauge", "server pool replica state", "State of a replica's circuit breaker."),
    ("pool_ready", "gauge", "server pool", "1 while calls of a pool find a replica."),
    ("index_seen", "gauge", "server pool replica", "1 while a replica says what it could not load."),
    ("load_failures", "gauge", "server pool replica", "Versions that a replica could not load."),
    (
        "load_failed_timestamp_seconds", "gauge", "server pool replica model version",
        "Unix time since when a version is not loaded.",
    ),
    ("spans", "counter", "outcome", "Spans of sampled calls."),
    ("config_generation", "gauge", "file", "Times a file was taken over."),
    ("config_failures", "counter", "file", "Times a file was refused."),
    ("config_good", "gauge", "file", "1 while the file as it lies there is in use."),
    ("config_edited", "gauge", "file", "1 while a table is not the one that was rolled out: it was edited."),
    ("certificate_expires_timestamp_seconds", "gauge", "", "Unix time at which the certificate ends."),
    ("issuer_keys_trusted_seconds", "gauge", "issuer", "Seconds that an issuer's keys are trusted yet."),
)  # fmt: skip

EVICTION: Final = _families(
    "tidegate_eviction_",
    ("acquires", "counter", "outcome", "Leases asked for, by outcome: hit where the model was resident."),
    ("busy", "counter", "reason", "Leases not to be had just then, by why."),
    ("refused_messages", "counter", "", "Messages to the lease port that were refused for their credential."),
    ("keys_known", "gauge", "", "1 once the cluster's keys were read: only then are holders of leases verified."),
    ("leases", "gauge", "", "Leases that live."),
    ("waiters", "gauge", "", "Callers that wait for a lease."),
    ("load_seconds", "histogram", "", "Seconds that loads took, of those that went well."),
    ("load_failures", "counter", "", "Loads that failed."),
    ("unload_failures", "counter", "", "Unloads that the server did not do."),
    ("evictions", "counter", "reason", "Unloads begun, by reason."),
    ("overruns", "counter", "", "Times that more was loaded than there is room for."),
    ("recycles", "counter", "", "Times that the server was to be restarted, for memory that did not come back."),
    ("policy_failures", "counter", "", "Times that a policy of one's own gave no answer that can be used."),
    ("triton_losses", "counter", "", "Times that the server ended."),
    ("triton_up", "gauge", "", "1 while there is a connection to the server."),
    ("bytes", "gauge", "kind", "Bytes of the slice, by what is there."),
    ("memory_used_bytes", "gauge", "", "Memory in use, as it was read last."),
    ("memory_source", "gauge", "source", "1 for where readings of memory come from."),
    ("models", "gauge", "state", "Models in each state."),
    ("model_state", "gauge", "model state", "1 for the state that a model is in."),
    ("model_footprint_bytes", "gauge", "model from", "What a model takes, and how that is known."),
    ("model_leases", "gauge", "model", "Leases on a resident model that live."),
    ("model_loads", "counter", "model", "Loads that went well."),
    ("model_load_failures", "counter", "model", "Loads that failed."),
    (
        "model_load_seconds", "gauge", "model",
        "Seconds that the last load of a model took, also before a restart of the policy.",
    ),
    ("model_evictions", "counter", "model reason", "Unloads begun, by reason."),
    ("model_evicted_others", "counter", "model", "Models that were unloaded to make room for this one."),
    ("model_quarantined_timestamp_seconds", "gauge", "model", "Unix time since when a model is not tried any more."),
    ("settings_good", "gauge", "", "1 while the settings file as it lies there is in use."),
    ("staging_loads", "counter", "files", "Loads, by where their files were."),
    ("staging_copied_bytes", "counter", "", "Bytes that were copied near the server."),
    ("staging_bytes", "gauge", "kind", "Bytes that staged files take, and may take."),
)  # fmt: skip

ENGINE: Final = _families(
    "tidegate_engine_",
    ("up", "gauge", "", "1 while an engine that speaks OpenAI's API tells its metrics, which are its own."),
)
