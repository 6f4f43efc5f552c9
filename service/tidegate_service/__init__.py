"""Common parts of Tidegate's processes in pods: logging, listeners, metrics, token verification, the admin thread."""
