"""A clock in the place of the module `time`, for code that does nothing but wait."""


class Clock:
    """Time that goes on when it is slept through, or told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
