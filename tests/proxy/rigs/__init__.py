"""Real programs for the proxy's tests and benchmarks, started as processes of this machine. Each is a context manager
that always ends what it started, by process ID."""
