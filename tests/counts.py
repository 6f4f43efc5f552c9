"""The number of examples of a property: all in `make test-all`, an eighth in `make test`, FUZZ in `make fuzz`. The
examples of `make test` are the same in every run, so that it fails only because of a change."""

import os

import hypothesis

FUZZ = int(os.environ.get("FUZZ") or 5000)
_thorough = False


def choose_counts(*, thorough: bool) -> None:
    """Choose the numbers for this process. Call it before pytest imports test modules."""
    global _thorough
    _thorough = thorough
    hypothesis.settings.register_profile("fuzz", max_examples=FUZZ, deadline=None)
    hypothesis.settings.register_profile("tidegate", parent=examples(100))
    hypothesis.settings.load_profile("tidegate")


def examples(full: int) -> hypothesis.settings:
    """Return Hypothesis' settings for a property with `full` examples in `make test-all`, without a deadline. Use it as
    a decorator, or as the `parent` of other settings."""
    return hypothesis.settings(
        max_examples=full if _thorough else max(5, full // 8),
        deadline=None,
        derandomize=not _thorough,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],  # It depends on the machine, as a deadline does.
    )
