"""The real Triton and the real proxy, which the proxy's own tests start too."""

from tests.proxy.rigs.pytest_rigs import front, real_triton

__all__ = ["front", "real_triton"]
