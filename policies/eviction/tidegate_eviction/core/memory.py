"""Memory: whether what was unloaded is really free, judged by readings of what the whole of Triton uses.

A reading is thought to be `base + leaked + what each loaded piece really takes`. What that is, is learned at quiet
moments, when nothing is loaded, unloaded or freed: a load since the last one took what the reading has grown by. Where
nothing was loaded, the growth belongs to the base: CUDA's context, Triton itself, and what models grow by at work.

What a reading shows beyond this while something is freed, has not come back yet. Memory that a load takes meanwhile
cannot be told from it and counts as not back: that is the safe side, and is put right at the next quiet moment.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from .room import Freeing, Room

_UNSURE_PATIENCE: Final = 0.1
"""Share of the patience for what nobody knows the real size of: it cannot be told what is missing."""


@dataclass(slots=True)
class Taken:
    """What a loaded piece really takes; if `sure`, it was measured."""

    bytes: int
    sure: bool


@dataclass(frozen=True, slots=True)
class Back:
    """What need not be waited for any more, and what of it is charged as leaked."""

    freeing: Freeing
    leaked_bytes: int


class Memory:
    """The last reading, and what is known by it."""

    def __init__(self) -> None:
        self.leaked = 0
        self._base: int | None = None
        self._used = 0
        self._read_at: float | None = None
        self._taken: dict[str, Taken] = {}
        self._fresh: dict[str, int] = {}
        """Pieces loaded since the last quiet moment, and by which load."""
        self._unsettled = False
        """Something was freed since the last quiet moment."""
        self._drift = 0
        """The sum of shortfalls that were each too small to be told from noise."""

    def loaded(self, load: int, sizes: Mapping[str, int], *, measured: bool) -> None:
        """Note that pieces were loaded, with the sizes that they are thought to have, or were measured to have."""
        for piece, size in sizes.items():
            self._taken[piece] = Taken(size, measured)
            if not measured:
                self._fresh[piece] = load

    def found(self, load: int, sizes: Mapping[str, int]) -> None:
        """Note that pieces are loaded which may be known from before the connection broke."""
        self.loaded(load, {piece: size for piece, size in sizes.items() if piece not in self._taken}, measured=False)

    def waits_on(self, room: Room) -> None:
        """Have what is being freed count as taken again: the connection breaks, and its memory may come back or not."""
        for each in room.freeing.values():
            for piece in each.pieces:
                share = each.expected_bytes * room.charges[piece] // max(1, each.bytes)
                self._taken[piece] = Taken(share, each.sure)

    @property
    def taken(self) -> list[str]:
        """Pieces that take memory, as far as was told."""
        return list(self._taken)

    def forget(self, pieces: Collection[str]) -> None:
        """Forget all but these pieces: of the others nobody tells any more."""
        for piece in self._taken.keys() - set(pieces):
            del self._taken[piece]
            self._fresh.pop(piece, None)

    def unloaded(self, pieces: Collection[str]) -> tuple[int, bool]:
        """Note that pieces are loaded no longer; return what is to come back, and whether that is sure."""
        taken = [self._taken.pop(piece) for piece in pieces if piece in self._taken]
        for piece in pieces:
            self._fresh.pop(piece, None)
        return sum(each.bytes for each in taken), all(each.sure for each in taken)

    def vanished(self) -> None:
        """Note that something went at a time that nobody knows: the base is learned anew at the next quiet moment."""
        self._base = None
        self._drift = 0

    def read(self, used_bytes: int, now: float) -> None:
        """Take a reading."""
        self._used = used_bytes
        self._read_at = now

    def back(self, freeing: Collection[Freeing], tolerance: int, patience: float) -> list[Back]:
        """Return who of these (the longest first) need not be waited for any more, as of the last reading.

        Whoever is waited for longer than `patience` seconds is given up, and what is missing is charged as leaked.
        """
        done: list[Back] = []
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
            done.append(Back(each, leaked))
            left -= each.expected_bytes
            self._unsettled = True
        return done

    def quiet(self, tolerance: int) -> tuple[int, dict[str, int]]:
        """Judge the last reading at a quiet moment.

        Returns what has leaked more than thought (less, if it is negative), and what pieces loaded since the last
        quiet moment really take.
        """
        if self._base is None:
            self._base = self._used - self.leaked - sum(each.bytes for each in self._taken.values())
            self._fresh.clear()
            self._unsettled = False
            return 0, {}
        difference = self._used - self._thought()
        learned, before = {}, self.leaked
        if self._fresh:
            difference = self._spread(difference)
            learned = {piece: self._taken[piece].bytes for piece in self._fresh}
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
        """Return what a reading would be if all that was unloaded were back."""
        return (self._base or 0) + self.leaked + sum(each.bytes for each in self._taken.values())

    def _spread(self, difference: int) -> int:
        """Give a difference to what was loaded since the last quiet moment, in proportion; return what is left."""
        pieces = [self._taken[piece] for piece in self._fresh]
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
