"""The data plane on this machine, made of its real parts: Triton, the proxy, the eviction policy.

For the demo, the benches and the tests. Everything listens on loopback, on free ports, and ends with its block.
"""
