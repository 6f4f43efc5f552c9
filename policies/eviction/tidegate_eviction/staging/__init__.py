"""Files near the server: each load's files are copied into a bounded folder first, and stay until others need room."""
