"""Who callers are, and what they may do: denied by default."""
