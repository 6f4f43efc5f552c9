"""Room: what is charged to the capacity, for whom, and what is on its way back."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from ..choosing import Shared


@dataclass(slots=True)
class Freeing:
    """What Triton says is unloaded and whose memory is not seen to be back."""

    model: str
    pieces: tuple[str, ...]
    bytes: int
    """What is charged for it."""
    expected_bytes: int
    """What is to come back: what it really took, as far as is known."""
    sure: bool
    """Whether that was measured."""
    since: float


class Room:
    """A charge for every piece: a model, or a composing model, which counts once however many need it."""

    def __init__(self) -> None:
        self.charges: dict[str, int] = {}
        self.users: dict[str, set[str]] = {}
        """Who needs a piece. One that goes is needed by nobody any more, and still charged."""
        self.going: dict[str, str] = {}
        """Pieces that are being unloaded or freed, and whose they were."""
        self.freeing: dict[str, Freeing] = {}
        """By model; the longest first."""
        self.total = 0
        self.pending = 0
        """What of the total is going: it is free some time soon."""
        self.tangled: set[str] = set()
        """Models with parts, and those that others need: what is free when they go depends on who else does."""

    def clear(self) -> None:
        """Forget everything: Triton has ended."""
        self.__init__()  # type: ignore[misc]

    def needed(self, pieces: Iterable[str], size: Callable[[str], int]) -> int:
        """Return what would have to be charged for these."""
        return sum(size(piece) for piece in pieces if piece not in self.charges)

    def take(self, model: str, pieces: tuple[str, ...], size: Callable[[str], int]) -> tuple[str, ...]:
        """Charge these pieces to a model; return those that were not there yet."""
        new = tuple(piece for piece in pieces if piece not in self.charges)
        for piece in new:
            self.charges[piece] = size(piece)
            self.total += self.charges[piece]
        for piece in pieces:
            users = self.users.setdefault(piece, set())
            users.add(model)
            if len(users) > 1:
                self.tangled |= users
        if len(pieces) > 1:
            self.tangled.add(model)
        return new

    def recharge(self, piece: str, size: int) -> None:
        """Charge another size: it was measured."""
        self.total += size - self.charges[piece]
        self.charges[piece] = size

    def leave(self, model: str, pieces: Iterable[str]) -> tuple[str, ...]:
        """Let a model go; return its pieces that nobody else needs. They stay charged until they are `drop`ped."""
        gone = []
        for piece in pieces:
            users = self.users[piece]
            users.discard(model)
            if not users:
                del self.users[piece]
                self.going[piece] = model
                self.pending += self.charges[piece]
                gone.append(piece)
        self.tangled.discard(model)
        return tuple(gone)

    def free(self, model: str, pieces: tuple[str, ...], expected_bytes: int, *, sure: bool, now: float) -> None:
        """Begin to wait for the memory of pieces that have left."""
        self.freeing[model] = Freeing(model, pieces, self.size(pieces), expected_bytes, sure, now)

    def drop(self, pieces: Iterable[str]) -> int:
        """Charge pieces that have left no longer; return what that frees."""
        freed = 0
        for piece in pieces:
            del self.going[piece]
            freed += self.charges.pop(piece)
        self.total -= freed
        self.pending -= freed
        return freed

    def size(self, pieces: Iterable[str]) -> int:
        """Return what is charged for these."""
        return sum(self.charges.get(piece, 0) for piece in pieces)

    def describe(self, pieces: Iterable[str], wanted: Collection[str]) -> tuple[int, tuple[Shared, ...]]:
        """Return what is free when a model with these pieces goes: at once, and when others go too.

        Pieces that are `wanted` by whom the room is for would only have to come back: they free nothing.
        """
        alone, shared = 0, []
        for piece in pieces:
            if piece in wanted:
                continue
            users = len(self.users[piece])
            if users == 1:
                alone += self.charges[piece]
            else:
                shared.append(Shared(piece, self.charges[piece], users))
        return alone, tuple(shared)
