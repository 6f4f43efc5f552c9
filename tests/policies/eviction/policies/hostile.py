"""A hostile policy. The name of the first model selects what it does. A package with entry points in a directory makes
it an installed policy."""

import itertools
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tidegate_eviction.policies import Candidate, Policy, registry


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def _raise(error: BaseException) -> Any:
    raise error


def _spoil(candidates: Sequence[Candidate]) -> list[Candidate]:
    for each in candidates:
        each.bytes, each.name, each.last_use, each.shared = 10**12, "leased", -1.0, ()
    return [*candidates]


WELL: dict[str, Callable[[Sequence[Candidate]], Any]] = {
    "all": lambda candidates: candidates,
    "last": lambda candidates: candidates[-1:],
    "none": lambda _candidates: (),
    "twice": lambda candidates: [candidates[0], candidates[0]][: len(candidates)],
    "spoils": _spoil,
}
"""It only chooses badly."""
BADLY: dict[str, Callable[[Sequence[Candidate]], Any]] = {
    "copies": lambda candidates: [Candidate("leased", 1, 0.0, 0.0, 0.0, 0.0) for _ in candidates],
    "nothing": lambda _candidates: None,
    "endless": lambda candidates: itertools.cycle(candidates),
    "raises": lambda _candidates: _raise(KeyError("no such model")),
    "unspeakable": lambda _candidates: _raise(Unspeakable()),
    "leaves": lambda _candidates: sys.exit(3),
    "recurses": lambda candidates: BADLY["recurses"](candidates),
}
"""Its results are invalid."""


def choose(candidates: Sequence[Candidate], _needed_bytes: int, _now: float) -> Iterable[Candidate]:
    """Do what the first model's name demands, or choose all."""
    how = candidates[0].name.partition(".")[0]
    return (WELL | BADLY).get(how, WELL["all"])(candidates)  # type: ignore[no-any-return]


def _whim(candidates: Sequence[Candidate], needed_bytes: int, now: float) -> Iterable[Candidate]:
    wild = [*WELL.values(), *BADLY.values()]
    return random.Random(f"{len(candidates)} {needed_bytes} {now}").choice(wild)(candidates)  # type: ignore[no-any-return]


whimsical = Policy("whimsical", "It does something else each time, and the same when all is the same.", _whim)
most = Policy("most", "All go.", lambda candidates, _needed, _now: candidates)
failing = Policy("failing", "", lambda _candidates, _needed, _now: _raise(KeyError("no such model")))
policy = Policy("hostile", "It does what the first model's name demands.", choose)
unnamed = Policy("another name", "", choose)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **named: str) -> None:
    """Install a package with these entry points of this module for this process and those that it starts."""
    about = folder / "bring-1.0.dist-info"
    about.mkdir(parents=True)
    lines = [f"{name} = {__name__}:{value}" for name, value in named.items()]
    (about / "entry_points.txt").write_text("\n".join([f"[{registry.GROUP}]", *lines]), "utf-8")
    monkeypatch.syspath_prepend(str(folder))
