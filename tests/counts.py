"""How many examples a property gets: all in `make test-all`, an eighth in `make test`, FUZZ in `make fuzz`.

`make test` draws the same examples in every run, so that it fails only because of a change.
"""

import os

import hypothesis

FUZZ = int(os.environ.get("FUZZ") or 5000)
LEAST = 5
_DEFAULT = 100
_thorough = False


def choose_counts(*, thorough: bool) -> None:
    """Decide for this process; to be called before test modules are imported."""
    global _thorough
    _thorough = thorough
    hypothesis.settings.register_profile("fuzz", max_examples=FUZZ, deadline=None)
    hypothesis.settings.register_profile("tidegate", parent=examples(_DEFAULT))
    hypothesis.settings.load_profile("tidegate")


def examples(full: int) -> hypothesis.settings:
    """Return Hypothesis' settings for a property that is asked `full` examples in `make test-all`; it has no deadline.

    It decorates a property, or is the `parent` of further settings.
    """
    return hypothesis.settings(
        max_examples=full if _thorough else max(LEAST, full // 8),
        deadline=None,
        derandomize=not _thorough,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],  # that is the machine, as a deadline would be
    )
