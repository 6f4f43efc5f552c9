"""HTTP/2 (RFC 9113) as gRPC needs it: frames, compressed headers, streams with flow control, and connections.

Written here because a proxy's speed is decided here: h2 parses and checks in objects what this takes as bytes.
"""
