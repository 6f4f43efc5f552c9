"""Fields of log lines (JSON objects), the same in all programs. docs/metrics.md is generated from this."""

from typing import Final

ALWAYS: Final = {
    "time": "time in UTC with milliseconds (RFC 3339)",
    "level": "`debug`, `info`, `warning`, `error` or `critical`",
    "logger": "which part logged it: `tidegate_proxy.calls`, `tidegate_eviction.events` …",
    "message": "a sentence for people",
}
FIELDS: Final = {
    "event": "the event, in one word",
    "exception": "the traceback of an unexpected error",
    # Whom it concerns
    "server": "server of the definition",
    "pool": "pool of the server",
    "replica": "replica of the pool, by host and port",
    "model": "model",
    "version": "version of the model",
    "principal": "the caller's name in access rules",
    # Which call
    "requestId": "`x-request-id` of the call",
    "traceId": "trace of the call: the second part of `traceparent`",
    "protocol": "`http` or `grpc`",
    "verb": "operation: `infer`, `ready`, …, or the method of gRPC",
    "status": "status of HTTP or gRPC",
    "calls": "calls of each server's models since the last line",
    "notLogged": "lines of this kind that were omitted since the last one",
    # How it went
    "problem": "type of the [problem](proxy-api.md#problems)",
    "reason": "cause, in one word",
    "why": "cause, in words for people",
    "seconds": "duration",
    "waitedSeconds": "wait for the model to be loaded",
    "queuedSeconds": "wait of a load for memory and its turn",
    "copiedSeconds": "duration of copies before the load",
    "idleSeconds": "time since the last use of a model",
    "retrySeconds": "time until the next attempt",
    "waiters": "callers that waited",
    "failures": "failures in a row",
    "wantedBy": "the model that the memory is for",
    # How much
    "bytes": "bytes concerned",
    "bytesIn": "bytes of the request's body",
    "bytesOut": "bytes of the response's body",
    "footprintBytes": "memory of a model",
    "leakedBytes": "memory of the slice that was not freed, in total",
    "measured": "measured bytes, by model and part",
    # At the start of a process
    "ports": "ports on which it listens",
    "servers": "servers of the routing table",
    "kind": "kind of the inference server",
    "policy": "name of the eviction policy",
    "found": "models loaded at the start",
}
