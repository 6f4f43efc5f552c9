"""How good the eviction policy decides, and what it costs."""
