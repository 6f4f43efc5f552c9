"""Memory: what readings tell of what is loaded, freed and leaked."""

import pytest
from tidegate_eviction.core.accounting import Freeing, MemoryEstimate

TOLERANCE = 4


class Triton:
    """A memory with so much loaded, and the judge of its readings."""

    def __init__(self, base: int = 1000) -> None:
        self.memory = MemoryEstimate()
        self.used = base
        self.now = 0.0
        self.number = 0

    def read(self) -> tuple[int, dict[str, int]]:
        self.now += 1
        self.memory.read(self.used, self.now)
        return self.memory.quiet(TOLERANCE)

    def load(self, piece: str, takes: int, *, thought: int | None = None, measured: bool = False) -> None:
        self.number += 1
        self.used += takes
        self.memory.loaded(self.number, {piece: takes if thought is None else thought}, measured=measured)

    def unload(self, piece: str, comes_back: int, charged: int) -> Freeing:
        self.used -= comes_back
        expected, sure = self.memory.unloaded((piece,))
        return Freeing(piece, (piece,), charged, expected, sure, self.now)

    def back(self, *freeing: Freeing, after: float = 1.0) -> list[tuple[str, int]]:
        self.now += after
        self.memory.read(self.used, self.now)
        return [(each.freeing.model, each.leaked_bytes) for each in self.memory.back(freeing, TOLERANCE, 30.0)]


def test_what_a_load_took_is_learned_at_the_next_quiet_moment() -> None:
    triton = Triton()
    triton.read()
    triton.load("a", 38, thought=50)
    assert triton.read() == (0, {"a": 38})
    assert triton.back(triton.unload("a", 38, charged=50)) == [("a", 0)], "a generous declaration is no leak"


def test_growth_at_work_is_the_base_and_not_a_leak() -> None:
    triton = Triton()
    triton.read()
    triton.load("a", 50)
    triton.read()
    for _ in range(10):
        triton.used += 20
        assert triton.read() == (0, {})
    assert triton.back(triton.unload("a", 50, charged=50)) == [("a", 0)]


def test_memory_is_waited_for_and_then_charged() -> None:
    triton = Triton()
    triton.read()
    triton.load("a", 50)
    triton.read()
    freeing = triton.unload("a", 20, charged=50)
    assert triton.back(freeing) == []
    assert triton.back(freeing, after=28.0) == []
    assert triton.back(freeing) == [("a", 30)]
    assert triton.memory.leaked == 30


def test_a_reading_of_before_the_unload_says_nothing() -> None:
    triton = Triton()
    triton.read()
    freeing = Freeing("a", ("a",), 50, 50, True, triton.now + 1)
    assert triton.memory.back((freeing,), TOLERANCE, 30.0) == []


def test_nothing_leaks_before_there_is_anything_to_compare_with() -> None:
    triton = Triton()
    triton.load("a", 50)
    assert triton.back(triton.unload("a", 0, charged=50)) == [("a", 0)]


def test_of_several_the_longest_waiting_is_back_first() -> None:
    triton = Triton()
    triton.read()
    for piece in ("a", "b"):
        triton.load(piece, 50)
        triton.read()
    first = triton.unload("a", 50, charged=50)
    second = triton.unload("b", 0, charged=50)
    assert triton.back(first, second) == [("a", 0)]


def test_a_load_that_is_under_way_hides_nothing() -> None:
    triton = Triton()
    triton.read()
    triton.load("a", 50)
    triton.read()
    freeing = triton.unload("a", 0, charged=50)
    triton.used += 40  # of a load that has not ended
    assert triton.back(freeing, after=30.0) == [("a", 50)]
    triton.used -= 50
    triton.memory.loaded(9, {"b": 40}, measured=True)
    assert triton.read()[0] == -50, "it was there again, after all"


def test_small_leaks_add_up() -> None:
    triton = Triton()
    triton.read()
    for _ in range(8):
        triton.load("a", 50, measured=True)
        triton.read()
        assert triton.back(triton.unload("a", 47, charged=50)) == [("a", 0)]
        triton.read()
    assert triton.memory.leaked == pytest.approx(8 * 3, abs=TOLERANCE + 3)


def test_noise_is_no_leak() -> None:
    triton = Triton()
    triton.read()
    for n in range(100):
        triton.load("a", 50, measured=True)
        triton.read()
        freeing = triton.unload("a", 50, charged=50)
        triton.used += (1, -1, 3, -3)[n % 4]
        triton.back(freeing)
        triton.read()
    assert triton.memory.leaked == 0


def test_of_what_was_found_at_a_start_nobody_knows_what_is_missing() -> None:
    triton = Triton()
    triton.used += 50
    triton.memory.loaded(0, {"a": 80}, measured=False)
    triton.read()
    freeing = triton.unload("a", 50, charged=80)
    assert triton.back(freeing) == []
    assert triton.back(freeing, after=3.0) == [("a", 0)], "it is not waited for as long, and nothing is charged"
    assert triton.read() == (0, {})
