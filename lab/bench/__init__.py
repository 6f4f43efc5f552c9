"""Benchmarks. Each compares with a peer in the same run, so that its result means the same on any machine."""
