"""What the tests of the proxy's process share with those of the proxy."""

from tests.proxy.rigs.pytest_rigs import identity_provider

__all__ = ["identity_provider"]
