"""Identity of callers, and what they may do: denied by default."""
