"""gRPC: the same calls, decisions and responses as over HTTP.

Messages pass through frame by frame. The proxy parses only the fields that name the model, its version and sequence.
"""
