"""The inference proxy: the one entry point to every model of an environment.

`http` and `grpc` serve callers. `access` decides what they may do. `routes` has the servers and models, `kinds` the
protocol of each kind of server. `forwarding` picks a replica from `pools`, `upstream` sends it the request, and
`residency` holds leases on models that are loaded on demand. `telemetry` counts, logs and traces. `serve` runs it all.
"""
