"""The eviction policy: which models of a pool stay in the memory of its inference server, by leases.

`core` decides, and does nothing else; `policies` holds the eviction policies; `serving` answers proxies, Prometheus and
people; `triton` carries out, as one of the `kinds` of servers; `simulate` runs the same core under simulated time.
"""
