"""What the tests of the core share."""

import os

import hypothesis

hypothesis.settings.register_profile("fuzz", max_examples=int(os.environ.get("FUZZ") or 5000), deadline=None)
