"""What all tests of the proxy share."""

import os

import hypothesis

from .rigs.pytest_rigs import front, identity_provider, real_triton

hypothesis.settings.register_profile("fuzz", max_examples=int(os.environ.get("FUZZ") or 5000), deadline=None)

__all__ = ["front", "identity_provider", "real_triton"]
