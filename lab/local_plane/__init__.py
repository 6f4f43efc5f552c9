"""The data plane on this machine with its real programs: Triton, the proxy, the eviction policy.

For the demos, the benchmarks and the tests. Everything listens on free ports of loopback, and ends with its block.
"""
