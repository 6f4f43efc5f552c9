"""Leases on models that are loaded on demand, held by this proxy at the eviction policies of a pool's replicas."""
