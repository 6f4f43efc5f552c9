"""The life of the process: invalid starts, reloads, restarts and ends under load, and failing providers."""
