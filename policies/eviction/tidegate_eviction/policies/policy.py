"""What an eviction policy is: a pure function that chooses which of the models that may be evicted are."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

MOST_REASON = 500  # Characters of what a policy's exception says that are told.


@dataclass(slots=True)
class SharedPart:
    """A composing model that several models need; its room is free when the last of them is evicted."""

    name: str
    bytes: int
    users: int  # How many models need it, those that may not go now included.


@dataclass(slots=True)
class Candidate:
    """A resident model that may be evicted now. Policies read it and change nothing."""

    name: str
    bytes: int  # What is free when it alone is evicted.
    last_use: float  # When a request last came or ended, as far as is known; when it was loaded, if none did.
    resident_since: float
    load_seconds: float  # How long its load took.
    gap_seconds: float
    """The mean time between its uses, recent ones counting more; 0 as long as it was used once. It is remembered
    while the model is cold."""
    shared: tuple[SharedPart, ...] = ()
    copied_seconds: float = 0.0  # How long its files were copied into the staging tier before its load.


Choose = Callable[[Sequence[Candidate], int, float], Iterable[Candidate]]
"""(candidates, needed_bytes, now) → the victims, the first one first. It is called only when all candidates together
free enough; should it choose too few all the same, the least recently used of the others are evicted too."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A function, its name, and what it does."""

    name: str
    sentence: str
    choose: Choose
    breaks_even: bool = False  # Whether what callers lose shortens idle limits: `core.break_even` says how.


class PolicyError(Exception):
    """A policy gave no answer that can be used; says why, in one line."""


def reason(error: BaseException) -> str:
    """Return an exception of a policy's in one line; one of ours is its own sentence."""
    try:
        said = str(error) if isinstance(error, PolicyError) else f"{type(error).__name__}: {error}"
    except Exception:  # whatever a foreign class does when it is asked
        said = type(error).__name__
    return " ".join(said.split())[:MOST_REASON]


def guarded(policy: Policy) -> Policy:
    """Return the policy of somebody else so that it can raise but `PolicyError`, and spoil nothing: it is given copies,
    and what it answers must be of them."""

    def choose(candidates: Sequence[Candidate], needed_bytes: int, now: float) -> list[Candidate]:
        given = [replace(each, shared=tuple(map(replace, each.shared))) for each in candidates]
        own = dict(zip(map(id, given), candidates, strict=True))
        try:
            chosen = list(islice(policy.choose([*given], needed_bytes, now), len(given) + 1))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise PolicyError(reason(error)) from error
        if len(chosen) > len(given):
            raise PolicyError(f"it chose more models than the {len(given)} that may go")
        if not all(id(each) in own for each in chosen):
            raise PolicyError("it chose what is none of the models that may go")
        return [own[id(each)] for each in chosen]

    return replace(policy, choose=choose)


class FreedBytes:
    """Adds up what the eviction of models frees, one after the other."""

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self.total = 0
        self._left: dict[str, int] = {}
        for candidate in candidates:
            self.add(candidate)

    def add(self, candidate: Candidate) -> None:
        """Add a candidate's bytes, and those of the parts that it is the last to use."""
        self.total += candidate.bytes
        for part in candidate.shared:
            users = self._left[part.name] = self._left.get(part.name, part.users) - 1
            if users == 0:
                self.total += part.bytes


def take(ordered: Iterable[Candidate], needed_bytes: int) -> list[Candidate]:
    """Return the first of these that together free so many bytes, or all; those that are not needed after all, because
    a larger one came later, are spared."""
    taken: list[Candidate] = []
    freed = FreedBytes()
    for candidate in ordered:
        if freed.total >= needed_bytes:
            break
        taken.append(candidate)
        freed.add(candidate)
    return _without_spare(taken, freed.total - needed_bytes, needed_bytes)


def freed_by(victims: Sequence[Candidate]) -> int:
    """Return how many bytes are free when all of these were evicted."""
    shared = FreedBytes(victim for victim in victims if victim.shared)
    return shared.total + sum([victim.bytes for victim in victims if not victim.shared])


def _without_spare(taken: list[Candidate], spare: int, needed_bytes: int) -> list[Candidate]:
    """Leave out victims without which enough is free. The very last one was needed, or it would not be there."""
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
