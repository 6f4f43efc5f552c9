"""Accounting of memory, in bytes: how large models are, what is charged for them, and what readings say.

A reading is thought to be `base + leaked + what each loaded piece really takes`. What that is, is learned at quiet
moments, when nothing is loaded, unloaded or freed: a load since the last one took what the reading has grown by. Where
nothing was loaded, the growth belongs to the base: CUDA's context, the server itself, and what models grow by at work.

What a reading shows beyond this while something is freed, has not come back yet. Memory that a load takes meanwhile
cannot be told from it and counts as not back: that is the safe side, and is put right at the next quiet moment.
"""

import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ..policies.policy import SharedPart
from .messages import ModelSpec

FootprintSource = Literal["declared", "measured", "estimated", "unknown"]


class FootprintTable:
    """The footprint of each model and each part, in bytes, without what it brings along."""

    def __init__(self) -> None:
        self._specs: Mapping[str, ModelSpec] = {}
        self._learned: dict[str, tuple[str, int]] = {}
        self._capacity = 0
        self._pinned: Collection[str] = ()
        self._guess: int | None = None

    def configure(self, specs: Mapping[str, ModelSpec], capacity_bytes: int, pinned: Collection[str]) -> None:
        """Take these models over, some (and parts) of which are pinned, and forget measurements of other contents."""
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
        """Remember a measurement of the current content."""
        spec = self._specs.get(name)
        self._learned[name] = (spec.stamp if spec else "", size)
        self._guess = None

    def source(self, name: str) -> FootprintSource:
        """Tell where a size comes from."""
        return self._find(name)[1]

    def known(self, name: str) -> bool:
        """Tell whether a size is more than an estimate."""
        return self.source(name) in ("declared", "measured")

    def of(self, name: str) -> int:
        """Return a size; a model of which nothing is known is thought to be as large as most others."""
        size = self._find(name)[0]
        return self._usual() if size is None else size

    def measured(self, name: str) -> int | None:
        """Return what a load of this content was measured to take, here or before the start; None: none was."""
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
        """Return the median of the known sizes, else a tenth of the capacity; never more than pinned models leave."""
        if self._guess is None:
            known = [self.of(name) for name in {*self._specs, *self._learned} if self.known(name)]
            guess = int(statistics.median_low(known)) if known else self._capacity // 10
            pinned = sum(self.of(name) for name in self._pinned if self.source(name) != "unknown")
            self._guess = max(0, min(guess, self._capacity - pinned))
        return self._guess


@dataclass(slots=True)
class Freeing:
    """What the server says is unloaded and whose memory was not seen to be back yet."""

    model: str
    pieces: tuple[str, ...]
    bytes: int
    expected_bytes: int  # What is to come back; `sure` if that was measured.
    sure: bool
    since: float
    ordered: float = 0.0  # When the unload was ordered.


class CapacityLedger:
    """A charge for every piece: a model, or a composing model, which counts once however many need it."""

    def __init__(self) -> None:
        self.charges: dict[str, int] = {}
        self.users: dict[str, set[str]] = {}
        """The models that need a piece; one that is on its way out has none any more, and is still charged."""
        self.going: dict[str, str] = {}  # Pieces that are being unloaded or freed, and the model whose they were.
        self.freeing: dict[str, Freeing] = {}
        self.margins: dict[str, int] = {}
        """What is charged beside for models that were never measured, until a reading tells what they take."""
        self.total = 0
        self.pending = 0
        self.tangled: set[str] = set()
        """Models with parts, and those that others need: what their eviction frees depends on other evictions."""

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
        """Charge another size, after a measurement."""
        self.total += size - self.charges[piece]
        self.charges[piece] = size

    def reserve(self, model: str, margin: int) -> None:
        """Charge a margin beside a model's pieces."""
        self.margins[model] = margin
        self.total += margin

    def settle(self, models: Iterable[str]) -> None:
        """End the margins of these models."""
        for model in tuple(models):
            self.total -= self.margins.pop(model, 0)

    def leave(self, model: str, pieces: Iterable[str]) -> tuple[str, ...]:
        """Take a model's needs away; return its pieces that no other needs, charged until they are `drop`ped."""
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
        """End the charges of pieces that have left."""
        for piece in pieces:
            del self.going[piece]
            freed = self.charges.pop(piece)
            self.total -= freed
            self.pending -= freed

    def size(self, pieces: Iterable[str]) -> int:
        """Return what is charged for these pieces."""
        return sum(self.charges.get(piece, 0) for piece in pieces)

    def describe(self, pieces: Iterable[str], wanted: Collection[str]) -> tuple[int, tuple[SharedPart, ...]]:
        """Return what the eviction of these pieces frees, but for `wanted` ones: at once, and when others go too."""
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


_UNSURE_PATIENCE: Final = 0.1  # Share of the patience for memory of unknown size: it cannot be told what is missing.


@dataclass(slots=True)
class PieceMemory:
    """What a loaded piece really takes; `sure` if that was measured."""

    bytes: int
    sure: bool


class MemoryEstimate:
    """What each piece takes in memory, and how many bytes leaked, estimated from the readings so far."""

    def __init__(self) -> None:
        self.leaked = 0
        self._base: int | None = None
        self._used = 0
        self._read_at: float | None = None
        self.taken: dict[str, PieceMemory] = {}
        self._fresh: dict[str, int] = {}  # Pieces loaded since the last quiet moment, and by which load.
        self._unsettled = False  # Something was freed since the last quiet moment.
        self._drift = 0  # The sum of shortfalls that were each too small to be told from noise.

    def loaded(self, load: int, sizes: Mapping[str, int], *, measured: bool) -> None:
        """Note that pieces were loaded, with their sizes: measured ones, or what they are thought to be."""
        for piece, size in sizes.items():
            self.taken[piece] = PieceMemory(size, measured)
            if not measured:
                self._fresh[piece] = load

    def waits_on(self, room: CapacityLedger) -> None:
        """Count what is being freed as taken again: the connection broke, and its memory may come back or not."""
        for each in room.freeing.values():
            for piece in each.pieces:
                share = each.expected_bytes * room.charges[piece] // max(1, each.bytes)
                self.taken[piece] = PieceMemory(share, each.sure)

    def forget(self, pieces: Collection[str]) -> None:
        """Drop the measures of every piece that is not among these."""
        for piece in self.taken.keys() - set(pieces):
            del self.taken[piece]
            self._fresh.pop(piece, None)

    def unloaded(self, pieces: Collection[str]) -> tuple[int, bool]:
        """Note that pieces are loaded no longer; return what is to come back, and whether that is sure."""
        taken = [self.taken.pop(piece) for piece in pieces if piece in self.taken]
        for piece in pieces:
            self._fresh.pop(piece, None)
        return sum(each.bytes for each in taken), all(each.sure for each in taken)

    def vanished(self) -> None:
        """Note that something was unloaded at an unknown time: the base is learned anew at the next quiet moment."""
        self._base = None
        self._drift = 0

    def read(self, used_bytes: int, now: float) -> None:
        """Keep a reading of the bytes in use, and when it was taken."""
        self._used = used_bytes
        self._read_at = now

    def back(self, freeing: Collection[Freeing], tolerance: int, patience: float) -> list[tuple[str, int]]:
        """Return which models' memory (the one waited for longest first) is back, or was waited for longer than
        `patience` seconds, each with the bytes that are missing and charged as leaked."""
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
        """Tell whether the last reading shows no more than is thought to be loaded, and so many bytes."""
        return self._base is not None and self._used <= self._thought() + more

    def quiet(self, tolerance: int) -> tuple[int, dict[str, int]]:
        """Judge the last reading at a quiet moment: return by how much the leak has grown (negative: come back), and
        what the pieces really take that were loaded since the last quiet moment."""
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
        """Return what a reading would be if all unloaded memory were back."""
        return (self._base or 0) + self.leaked + sum(each.bytes for each in self.taken.values())

    def _spread(self, difference: int) -> int:
        """Share a difference among what was loaded since the last quiet moment, by size; return what is left."""
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
