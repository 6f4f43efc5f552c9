"""What a policy is: a pure function that chooses, of models that may go, those that do."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Shared:
    """A composing model that several models need; its room is free when the last of them goes."""

    name: str
    bytes: int
    users: int
    """How many models need it, those that may not go now included."""


@dataclass(slots=True)
class Candidate:
    """A resident model that may be evicted now. Policies read it and change nothing."""

    name: str
    bytes: int
    """What is free when it alone goes."""
    last_use: float
    """When a request last came or ended, as far as is known; when it was loaded, if none did."""
    resident_since: float
    load_seconds: float
    """How long its load took."""
    gap_seconds: float
    """The mean time between its uses, recent ones counting more; 0 as long as it was used once. It is remembered
    while the model is cold."""
    shared: tuple[Shared, ...] = ()


Choose = Callable[[Sequence[Candidate], int, float], Iterable[Candidate]]
"""(candidates, needed_bytes, now) → who goes, the first one first. It is asked only when all candidates together free
enough; should it choose too few all the same, the least recently used of the others go too."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A function, with its name and what it respects."""

    name: str
    sentence: str
    choose: Choose
    idle_limits: bool = True
    """Whether a model's idle limit counts: without, any model that nobody holds a lease on may go."""
    evicts: bool = True
    """Whether anything goes to make room at all."""


class Tally:
    """Adds up what is free when models go, one after the other."""

    def __init__(self) -> None:
        self.freed = 0
        self._left: dict[str, int] = {}
        """Of shared parts: how many need them still."""

    def add(self, candidate: Candidate) -> None:
        """Have one more go."""
        self.freed += candidate.bytes
        for part in candidate.shared:
            users = self._left[part.name] = self._left.get(part.name, part.users) - 1
            if users == 0:
                self.freed += part.bytes


def take(ordered: Iterable[Candidate], needed_bytes: int) -> list[Candidate]:
    """Return the first of these that together free so many bytes; all of them, if they do not.

    Those that are not needed after all, because a larger one came later, are spared, the last ones first.
    """
    taken: list[Candidate] = []
    tally = Tally()
    for candidate in ordered:
        if tally.freed >= needed_bytes:
            break
        taken.append(candidate)
        tally.add(candidate)
    return _without_spare(taken, tally.freed - needed_bytes, needed_bytes)


def freed_by(victims: Sequence[Candidate]) -> int:
    """Return how many bytes are free when all of these have gone."""
    tally = Tally()
    for victim in victims:
        if victim.shared:
            tally.add(victim)
    return tally.freed + sum([victim.bytes for victim in victims if not victim.shared])


def _without_spare(taken: list[Candidate], spare: int, needed_bytes: int) -> list[Candidate]:
    """Leave out those without whom enough is free. The very last one was needed, or it would not have been taken."""
    if spare < 0:
        return taken
    shares = any(victim.shared for victim in taken)
    out: set[int] = set()
    for place in range(len(taken) - 2, -1, -1):
        if shares:
            rest = [victim for other, victim in enumerate(taken) if other != place and other not in out]
            if freed_by(rest) >= needed_bytes:
                out.add(place)
        elif taken[place].bytes <= spare:
            spare -= taken[place].bytes
            out.add(place)
    return [victim for place, victim in enumerate(taken) if place not in out]
