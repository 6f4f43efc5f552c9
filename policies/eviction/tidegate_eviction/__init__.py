"""The eviction policy: which models of a pool stay in the memory of its Triton, by leases.

`core` decides, and does nothing else; `choosing` holds the policies; `triton` and `serving` carry out and answer;
`simulate` runs the same core under simulated time.
"""
