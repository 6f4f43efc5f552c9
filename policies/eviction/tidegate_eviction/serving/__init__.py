"""The policy's interfaces: leases for proxies, probes and metrics, settings, and measurements."""
