"""The inference proxy: the one entry point to every model of an environment.

`http` and `grpc` speak with callers; `access` decides what they may, `routes` says what there is, `kinds` how
servers of a kind are asked. `forwarding` finds a replica in `pools`, `upstream` sends the request there, `residency`
holds leases on models that are loaded on demand. `telemetry` counts and tells. `serve` brings all of it up and down.
"""
