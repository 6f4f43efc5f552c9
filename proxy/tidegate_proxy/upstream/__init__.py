"""The inference servers behind the proxy: their pools, replicas, and connections to them."""
