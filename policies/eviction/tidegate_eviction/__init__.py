"""The eviction policy: which models of a pool stay in the memory of its inference server, by leases.

`core` decides, `policies` has the eviction policies, and `serving` has the interfaces for proxies, Prometheus and
people. `triton` carries out the commands. `simulate` runs the same core under simulated time.
"""
