"""How large models are: declared, else measured, else estimated."""

import statistics
from collections.abc import Collection, Mapping
from typing import Literal

from .rules import ModelSpec

Source = Literal["declared", "measured", "estimated", "unknown"]


class Sizes:
    """The footprint of each model and each part, in bytes, without what it brings along."""

    def __init__(self) -> None:
        self._specs: Mapping[str, ModelSpec] = {}
        self._learned: dict[str, tuple[str, int]] = {}
        self._capacity = 0
        self._pinned: Collection[str] = ()
        self._guess: int | None = None

    def configure(self, specs: Mapping[str, ModelSpec], capacity_bytes: int, pinned: Collection[str]) -> None:
        """Go on with these models, of which some (and parts) are pinned; what was measured of another content is
        forgotten."""
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
        """Remember what was measured."""
        spec = self._specs.get(name)
        self._learned[name] = (spec.stamp if spec else "", size)
        self._guess = None

    def source(self, name: str) -> Source:
        """Tell where a size comes from."""
        spec = self._specs.get(name)
        if spec is not None and spec.footprint_bytes is not None:
            return "declared"
        if name in self._learned:
            return "measured"
        if spec is not None and spec.estimate_bytes is not None:
            return spec.estimate_from
        return "unknown"

    def known(self, name: str) -> bool:
        """Tell whether a size is more than an estimate."""
        return self.source(name) in ("declared", "measured")

    def of(self, name: str) -> int:
        """Return a size. What was measured counts against a declaration that is smaller; what nothing is known of is
        thought to be as large as most others."""
        spec = self._specs.get(name)
        learned = self._learned.get(name, ("", None))[1]
        if spec is not None and spec.footprint_bytes is not None:
            return max(spec.footprint_bytes, learned or 0)
        if learned is not None:
            return learned
        if spec is not None and spec.estimate_bytes is not None:
            return spec.estimate_bytes
        return self._usual()

    def _usual(self) -> int:
        """Return the median of those known, else a tenth of the capacity; never more than pinned models leave."""
        if self._guess is None:
            known = [self.of(name) for name in {*self._specs, *self._learned} if self.known(name)]
            guess = int(statistics.median_low(known)) if known else self._capacity // 10
            pinned = sum(self.of(name) for name in self._pinned if self.source(name) != "unknown")
            self._guess = max(0, min(guess, self._capacity - pinned))
        return self._guess
