"""The core: it decides what is loaded and unloaded and which leases are granted, and does nothing else.

Synchronous and deterministic: no input or output, no clock, no threads, no logging. Every method of `Residency` is told
`now`, seconds of a monotonic clock, and returns a `Step`. Container, simulator and tests run this same code.
"""
