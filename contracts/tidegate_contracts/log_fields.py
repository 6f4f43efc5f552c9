"""The fields of a log line, with the same names in proxies, policies and observers.

Each line is a JSON object. `make docs` writes docs/metrics.md from this.
"""

from typing import Final

ALWAYS: Final = {
    "time": "time in UTC with milliseconds (RFC 3339)",
    "level": "`debug`, `info`, `warning`, `error` or `critical`",
    "logger": "part of the program: `tidegate_proxy.calls`, `tidegate_eviction.events` …",
    "message": "a sentence for people. Programs read the other fields",
}
FIELDS: Final = {
    "event": "event in one word",
    "exception": "traceback of a defect",
    # Subject
    "server": "server of the definition",
    "pool": "pool of the server",
    "replica": "replica of the pool, by host and port",
    "model": "model",
    "version": "version of the model",
    "principal": "the caller's principal, as in access rules",
    # Call
    "requestId": "`x-request-id` of the call",
    "traceId": "trace of the call, if it has one: the second part of `traceparent`",
    "protocol": "`http` or `grpc`",
    "verb": "operation: `infer`, `ready`, …, or the gRPC method",
    "status": "status of HTTP or gRPC",
    "calls": "calls of each server's models since the last line, including this one",
    "notLogged": "lines of this kind dropped since the last one, because there were too many",
    # Outcome
    "problem": "type of the problem (docs/proxy-api.md, Problems)",
    "reason": "reason in one word, for programs",
    "why": "reason in words, for people",
    "seconds": "duration",
    "waitedSeconds": "wait for the model to be loaded",
    "queuedSeconds": "wait of a load for memory and its turn",
    "copiedSeconds": "time for copying files before the load",
    "idleSeconds": "time since the last use of a model",
    "retrySeconds": "time until the next attempt",
    "waiters": "callers that waited",
    "failures": "failures in a row",
    "wantedBy": "the model that needs the memory",
    # Amounts
    "bytes": "size",
    "bytesIn": "size of the request body",
    "bytesOut": "size of the response body",
    "footprintBytes": "memory that a model needs",
    "leakedBytes": "all leaked memory of the slice",
    "measured": "measured bytes, by model and part",
    # Start of a process
    "ports": "ports that it listens on",
    "servers": "servers of the routing table",
    "kind": "kind of the inference server",
    "policy": "name of the eviction policy",
    "found": "models that the server has loaded at the start",
}
