"""HTTP/2 (RFC 9113) for gRPC: frames, compressed headers, streams with flow control, and connections.

The proxy has its own implementation for speed: the package h2 builds an object for each event, but this works on bytes.
"""
