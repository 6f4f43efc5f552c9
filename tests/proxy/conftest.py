"""What all tests of the proxy share."""

from .rigs.pytest_rigs import front, identity_provider, real_triton

__all__ = ["front", "identity_provider", "real_triton"]
