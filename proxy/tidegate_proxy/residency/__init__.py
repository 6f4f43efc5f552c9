"""This proxy's leases on models that are loaded on demand, granted by the eviction policies of a pool's replicas."""
