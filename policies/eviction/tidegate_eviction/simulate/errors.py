"""What simulations refuse."""


class SimulationError(Exception):
    """Wrong input. The message says what, where, why and what to do."""


class MissingLibraryError(SimulationError):
    """A library that only some of it needs is not installed: the rest goes on without."""
