"""Accounting of memory in bytes: the sizes of models, their charges, and the interpretation of readings.

A reading is modelled as `base + leaked + the real size of each loaded piece`. The sizes are learned in quiet moments,
when nothing is loaded, unloaded or freed. If a load ran since the last one, it used the growth of the reading. If not,
the growth belongs to the base: CUDA's context, the server itself, and the growth of models at work.

If a reading shows more while something is being freed, that memory is not free yet. Memory of a load at that time
cannot be distinguished, and counts as not free. This is the safe side, and is corrected in the next quiet moment.
"""

import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ..policies.policy import SharedPart
from .messages import ModelSpec

FootprintSource = Literal["declared", "measured", "estimated", "unknown"]


class FootprintTable:
    """The footprint of each model and each part, in bytes, without its parts."""

    def __init__(self) -> None:
        self._specs: Mapping[str, ModelSpec] = {}
        self._learned: dict[str, tuple[str, int]] = {}
        self._capacity = 0
        self._pinned: Collection[str] = ()
        self._guess: int | None = None

    def configure(self, specs: Mapping[str, ModelSpec], capacity_bytes: int, pinned: Collection[str]) -> None:
        """Use these models, of which some (and parts) are pinned, and forget measurements of other contents."""
        self._learned = {
            name: (stamp, size)
            for name, (stamp, size) in self._learned.items()
            if name not in specs or specs[name].stamp == stamp
        }
        self._specs = specs
        self._capacity = capacity_bytes
        self._pinned = pinned
        self._guess = None

    def learn(self, name: str, size: int) -> None:
        spec = self._specs.get(name)
        self._learned[name] = (spec.stamp if spec else "", size)
        self._guess = None

    def source(self, name: str) -> FootprintSource:
        return self._find(name)[1]

    def known(self, name: str) -> bool:
        """Return whether a size is declared or measured."""
        return self.source(name) in ("declared", "measured")

    def of(self, name: str) -> int:
        """Return a size. An unknown model is assumed to be as large as most others."""
        size = self._find(name)[0]
        return self._usual() if size is None else size

    def measured(self, name: str) -> int | None:
        """Return the measured size of this content, from now or before the start. None: it was never measured."""
        if name in self._learned:
            return self._learned[name][1]
        spec = self._specs.get(name)
        return spec.estimate_bytes if spec is not None and spec.estimate_from == "measured" else None

    def _find(self, name: str) -> tuple[int | None, FootprintSource]:
        spec, measured = self._specs.get(name), self.measured(name)
        if spec is not None and spec.footprint_bytes is not None:
            return max(spec.footprint_bytes, measured or 0), "declared"
        if measured is not None:
            return measured, "measured"
        if spec is not None and spec.estimate_bytes is not None:
            return spec.estimate_bytes, spec.estimate_from
        return None, "unknown"

    def _usual(self) -> int:
        """Return the median of the known sizes, or a tenth of the capacity, but never more than pinned models leave."""
        if self._guess is None:
            known = [self.of(name) for name in {*self._specs, *self._learned} if self.known(name)]
            guess = int(statistics.median_low(known)) if known else self._capacity // 10
            pinned = sum(self.of(name) for name in self._pinned if self.source(name) != "unknown")
            self._guess = max(0, min(guess, self._capacity - pinned))
        return self._guess


@dataclass(slots=True)
class Freeing:
    """Pieces that the server reports as unloaded, whose memory is not free yet."""

    model: str
    pieces: tuple[str, ...]
    bytes: int
    expected_bytes: int  # The memory to be freed. `sure` if it was measured.
    sure: bool
    since: float
    ordered: float = 0.0


class CapacityLedger:
    """A charge for every piece: a model, or a composing model, which counts once for all models that need it."""

    def __init__(self) -> None:
        self.charges: dict[str, int] = {}
        self.users: dict[str, set[str]] = {}
        """The models that need a piece. A piece that is being unloaded has none, and is still charged."""
        self.going: dict[str, str] = {}  # Pieces that are being unloaded or freed, and their model.
        self.freeing: dict[str, Freeing] = {}
        self.margins: dict[str, int] = {}
        """Additional charges for models that were never measured, until a reading shows their size."""
        self.total = 0
        self.pending = 0
        self.tangled: set[str] = set()
        """Models with parts, and models that others need. How much their eviction frees depends on other evictions."""

    def take(self, model: str, pieces: tuple[str, ...], size: Callable[[str], int]) -> tuple[str, ...]:
        """Charge these pieces to a model. Return those that were not charged before."""
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
        self.total += size - self.charges[piece]
        self.charges[piece] = size

    def reserve(self, model: str, margin: int) -> None:
        self.margins[model] = margin
        self.total += margin

    def settle(self, models: Iterable[str]) -> None:
        """End the margins of these models."""
        for model in tuple(models):
            self.total -= self.margins.pop(model, 0)

    def leave(self, model: str, pieces: Iterable[str]) -> tuple[str, ...]:
        """Remove a model's use of pieces. Return those that no other model needs. They stay charged until `drop`."""
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
        self.settle([model])
        return tuple(gone)

    def drop(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            del self.going[piece]
            freed = self.charges.pop(piece)
            self.total -= freed
            self.pending -= freed

    def size(self, pieces: Iterable[str]) -> int:
        return sum(self.charges.get(piece, 0) for piece in pieces)

    def describe(self, pieces: Iterable[str], wanted: Collection[str]) -> tuple[int, tuple[SharedPart, ...]]:
        """Return the bytes that evicting these pieces, except `wanted`, frees: immediately, and with others."""
        alone, shared = 0, []
        for piece in pieces:
            if piece in wanted:
                continue
            users = len(self.users[piece])
            if users == 1:
                alone += self.charges[piece]
            else:
                shared.append(SharedPart(piece, self.charges[piece], users))
        return alone, tuple(shared)


_UNSURE_PATIENCE: Final = 0.1  # Share of the patience for memory of unknown size.


@dataclass(slots=True)
class PieceMemory:
    """The real size of a loaded piece. `sure` if it was measured."""

    bytes: int
    sure: bool


class MemoryEstimate:
    """The memory of each piece and the leaked bytes, estimated from the readings so far."""

    def __init__(self) -> None:
        self.leaked = 0
        self._base: int | None = None
        self._used = 0
        self._read_at: float | None = None
        self.taken: dict[str, PieceMemory] = {}
        self._fresh: dict[str, int] = {}  # Pieces loaded since the last quiet moment, and their load.
        self._unsettled = False  # Something was freed since the last quiet moment.
        self._drift = 0  # The sum of shortfalls that were each within the noise.

    def loaded(self, load: int, sizes: Mapping[str, int], *, measured: bool) -> None:
        """Note that pieces were loaded, with their measured or assumed sizes."""
        for piece, size in sizes.items():
            self.taken[piece] = PieceMemory(size, measured)
            if not measured:
                self._fresh[piece] = load

    def waits_on(self, room: CapacityLedger) -> None:
        """Count memory that is being freed as used again: after a broken connection it may come back or not."""
        for each in room.freeing.values():
            for piece in each.pieces:
                share = each.expected_bytes * room.charges[piece] // max(1, each.bytes)
                self.taken[piece] = PieceMemory(share, each.sure)

    def forget(self, pieces: Collection[str]) -> None:
        """Forget the sizes of all other pieces."""
        for piece in self.taken.keys() - set(pieces):
            del self.taken[piece]
            self._fresh.pop(piece, None)

    def unloaded(self, pieces: Collection[str]) -> tuple[int, bool]:
        """Note that pieces are unloaded. Return the bytes to be freed, and whether they were measured."""
        taken = [self.taken.pop(piece) for piece in pieces if piece in self.taken]
        for piece in pieces:
            self._fresh.pop(piece, None)
        return sum(each.bytes for each in taken), all(each.sure for each in taken)

    def vanished(self) -> None:
        """Note that something was unloaded at an unknown time: the base is learned again in the next quiet moment."""
        self._base = None
        self._drift = 0

    def read(self, used_bytes: int, now: float) -> None:
        self._used = used_bytes
        self._read_at = now

    def back(self, freeing: Collection[Freeing], tolerance: int, patience: float) -> list[tuple[str, int]]:
        """Return the models, the longest waiting first, whose memory is free, or was waited for longer than `patience`
        seconds. Each has the missing bytes that are charged as leaked."""
        done: list[tuple[str, int]] = []
        left = sum(each.expected_bytes for each in freeing)
        for each in freeing:
            if self._read_at is None or self._read_at < each.since:
                break
            beyond = 0 if self._base is None else max(0, self._used - self._thought())
            if each.expected_bytes - tolerance <= left - beyond:
                leaked = 0
            elif self._read_at - each.since < patience * (1 if each.sure else _UNSURE_PATIENCE):
                break
            else:
                missing = min(each.expected_bytes, beyond)
                leaked = min(missing, each.bytes) if each.sure else 0
                self.leaked += leaked
                self._base = (self._base or 0) + missing - leaked
            done.append((each.model, leaked))
            left -= each.expected_bytes
            self._unsettled = True
        return done

    def is_within(self, more: int) -> bool:
        """Return whether the last reading shows at most the expected memory and `more` bytes."""
        return self._base is not None and self._used <= self._thought() + more

    def quiet(self, tolerance: int) -> tuple[int, dict[str, int]]:
        """Evaluate the last reading in a quiet moment. Return the growth of the leak (negative: freed) and the real
        sizes of pieces loaded since the last quiet moment."""
        if self._base is None:
            self._base = self._used - self.leaked - sum(each.bytes for each in self.taken.values())
            self._fresh.clear()
            self._unsettled = False
            return 0, {}
        difference = self._used - self._thought()
        learned, before = {}, self.leaked
        if self._fresh:
            difference = self._spread(difference)
            learned = {piece: self.taken[piece].bytes for piece in self._fresh}
            self._fresh.clear()
        elif -difference > tolerance and self.leaked:
            back = min(self.leaked, -difference)
            self.leaked -= back
            difference += back
        elif self._unsettled:
            self._drift = max(self._drift + difference, -tolerance)
            if self._drift > tolerance:
                self.leaked += self._drift
                difference -= self._drift
                self._drift = 0
        self._base += difference
        self._unsettled = False
        return self.leaked - before, learned

    def _thought(self) -> int:
        """Return the expected reading if all unloaded memory were free."""
        return (self._base or 0) + self.leaked + sum(each.bytes for each in self.taken.values())

    def _spread(self, difference: int) -> int:
        """Distribute a difference over the pieces loaded since the last quiet moment, by size. Return the rest."""
        pieces = [self.taken[piece] for piece in self._fresh]
        whole = sum(each.bytes for each in pieces)
        sure = len(set(self._fresh.values())) == 1 and not self._unsettled
        left = difference
        for place, each in enumerate(pieces):
            share = difference * each.bytes // whole if whole else difference // len(pieces)
            if place == len(pieces) - 1:
                share = left
            grown = max(0, each.bytes + share)
            left -= grown - each.bytes
            each.bytes, each.sure = grown, sure
        return left
