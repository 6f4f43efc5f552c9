"""HTTP/1.1: callers' connections, their requests, and the answers."""
