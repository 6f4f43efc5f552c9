"""Authentication and authorization of callers. Access is denied by default."""
