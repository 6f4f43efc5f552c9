"""Triton: all of the client that knows this kind of inference server by name."""
