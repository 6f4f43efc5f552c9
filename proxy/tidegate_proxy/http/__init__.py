"""HTTP/1.1: the callers' connections, requests and responses."""
