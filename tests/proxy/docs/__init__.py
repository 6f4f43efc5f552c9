"""docs/proxy-api.md matches the proxy."""
