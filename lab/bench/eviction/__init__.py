"""How good the eviction policy decides."""
