"""The interface of eviction policies: a pure function that chooses among the models that can be evicted."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

MOST_REASON = 500  # The longest reported text of a policy's exception, in characters.


@dataclass(slots=True)
class SharedPart:
    """A composing model that several models need. Its memory is free when the last of them is evicted."""

    name: str
    bytes: int
    users: int  # Including models that cannot be evicted now.


@dataclass(slots=True)
class Candidate:
    """A resident model that can be evicted now. Policies must not change it."""

    name: str
    bytes: int  # The bytes that evicting only this model frees.
    last_use: float  # The last known begin or end of a request, or the load if there was none.
    resident_since: float
    load_seconds: float
    gap_seconds: float
    """The mean time between its uses, with more weight on recent ones. 0 after a single use. It is kept while the model
    is cold."""
    shared: tuple[SharedPart, ...] = ()
    copied_seconds: float = 0.0  # The time to copy its files to the staging tier before its load.


Choose = Callable[[Sequence[Candidate], int, float], Iterable[Candidate]]
"""(candidates, needed_bytes, now) → the victims, the first one first. It is called only if all candidates together free
enough. If it chooses too few, the least recently used of the others are added."""


@dataclass(frozen=True, slots=True)
class Policy:
    """An eviction policy: a function, its name, and a description."""

    name: str
    sentence: str
    choose: Choose
    breaks_even: bool = False  # Whether the losses of callers shorten idle limits (`core.break_even`).


class PolicyError(Exception):
    """A policy's result cannot be used. The text is one line."""


def reason(error: BaseException) -> str:
    """Return an exception of a policy in one line."""
    try:
        text = str(error) if isinstance(error, PolicyError) else f"{type(error).__name__}: {error}"
    except Exception:  # A custom exception class may raise anything.
        text = type(error).__name__
    return " ".join(text.split())[:MOST_REASON]


def guarded(policy: Policy) -> Policy:
    """Wrap a custom policy so that it raises only `PolicyError`. It gets copies, and must choose among them."""

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
            raise PolicyError(f"it chose more models than its {len(given)} candidates")
        if not all(id(each) in own for each in chosen):
            raise PolicyError("it chose something that is not one of its candidates")
        return [own[id(each)] for each in chosen]

    return replace(policy, choose=choose)


class FreedBytes:
    """Sums up the bytes that evicting models frees, one after the other."""

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self.total = 0
        self._left: dict[str, int] = {}
        for candidate in candidates:
            self.add(candidate)

    def add(self, candidate: Candidate) -> None:
        """Add a candidate's bytes, and those of shared parts that it is the last to use."""
        self.total += candidate.bytes
        for part in candidate.shared:
            users = self._left[part.name] = self._left.get(part.name, part.users) - 1
            if users == 0:
                self.total += part.bytes


def take(ordered: Iterable[Candidate], needed_bytes: int) -> list[Candidate]:
    """Return the first of these that free `needed_bytes`, or all, without those that a later one makes unnecessary."""
    taken: list[Candidate] = []
    freed = FreedBytes()
    for candidate in ordered:
        if freed.total >= needed_bytes:
            break
        taken.append(candidate)
        freed.add(candidate)
    return _without_spare(taken, freed.total - needed_bytes, needed_bytes)


def freed_by(victims: Sequence[Candidate]) -> int:
    """Return the bytes that evicting all of these frees."""
    shared = FreedBytes(victim for victim in victims if victim.shared)
    return shared.total + sum([victim.bytes for victim in victims if not victim.shared])


def _without_spare(taken: list[Candidate], spare: int, needed_bytes: int) -> list[Candidate]:
    """Leave out victims that are not needed. The last one always is, because it was added for the missing bytes."""
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
