"""The proxy's side towards replicas."""
