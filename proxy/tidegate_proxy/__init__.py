"""The inference proxy: one door to every model of an environment.

`door` speaks HTTP with callers, `calls` gRPC; `access` decides who may, `routes` what there is, `upstream` where it
goes; `seeing` counts and tells. `serve` brings all of it up and down.
"""
