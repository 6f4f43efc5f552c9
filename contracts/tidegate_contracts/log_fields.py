"""What the fields of a line of the log say: one name for one thing, in proxies, policies and observers.

Each line is a JSON object. docs/metrics.md is written from this.
"""

from typing import Final

ALWAYS: Final = {
    "time": "when, in UTC with milliseconds (RFC 3339)",
    "level": "`debug`, `info`, `warning`, `error` or `critical`",
    "logger": "which part says it: `tidegate_proxy.calls`, `tidegate_eviction.events` …",
    "message": "a sentence for people; programs read the other fields",
}
FIELDS: Final = {
    "event": "what happened, in one word",
    "exception": "the traceback of a defect",
    # Whom it concerns
    "server": "server of the definition",
    "pool": "pool of the server",
    "replica": "replica of the pool, by host and port",
    "model": "model",
    "version": "version of the model",
    "principal": "who calls, as access rules name him",
    # Which call
    "requestId": "`x-request-id` of the call",
    "traceId": "trace of the call, where it has one: the second part of `traceparent`",
    "protocol": "`http` or `grpc`",
    "verb": "what was called: `infer`, `ready`, …; over gRPC the method",
    "status": "how it ended: HTTP's status, or gRPC's",
    "calls": "calls of each server's models since the last line, its own included",
    "notLogged": "lines of this kind that were left out since the last one, because there were too many",
    # How it went
    "problem": "type of the problem: docs/proxy-api.md, Problems",
    "reason": "why, in one word for programs",
    "why": "why, in words for people",
    "seconds": "how long it took",
    "waitedSeconds": "how long it waited for its model to be loaded",
    "queuedSeconds": "how long a load waited for room and its turn",
    "copiedSeconds": "how long files were copied before the load",
    "idleSeconds": "how long a model had not been used",
    "retrySeconds": "after how long it is tried again",
    "waiters": "callers that waited",
    "failures": "failures one after the other",
    "wantedBy": "the model that the room is for",
    # How much
    "bytes": "bytes that it is about",
    "bytesIn": "bytes of the request's body",
    "bytesOut": "bytes of the answer's body",
    "footprintBytes": "bytes that a model takes",
    "leakedBytes": "bytes of the slice that did not come back, all in all",
    "measured": "bytes that were measured, by model and part",
    # What a process begins with
    "ports": "where it listens",
    "servers": "servers of the routing table",
    "kind": "kind of the inference server",
    "policy": "name of the eviction policy",
    "found": "what the server has loaded at the start",
}
