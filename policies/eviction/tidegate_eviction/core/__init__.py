"""The core decides which models are loaded and unloaded and which leases are granted, and does nothing else.

It is synchronous and deterministic: no input or output, no clock, no threads, no logging. Every method of `Residency`
gets `now`, in seconds of a monotonic clock, and returns a `Step`. The container, the simulator and the tests run the
same code.
"""
