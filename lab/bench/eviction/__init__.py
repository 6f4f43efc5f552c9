"""How good the eviction policy decides, and how fast, and what it costs."""
