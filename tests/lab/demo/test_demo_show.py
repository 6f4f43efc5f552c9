"""Bars tell how much of a slice is whose."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.console import Console
from tidegate_contracts.lease import LeaseOf, Listed, Listing, State

from lab.demo.show import LEGEND, Show, bar

WIDTH = 60
HELD: list[State] = ["resident", "draining", "loading", "unloading", "freeing"]


def listed(model: str, size: int, state: State = "resident", leased: bool = False) -> Listed:
    leases = (LeaseOf(holder="p", seconds_left=1, in_flight=0),) if leased else ()
    return Listed(model=model, state=state, footprint_bytes=size, leases=leases)


def listing(capacity: int, *models: Listed) -> Listing:
    taken = sum(each.footprint_bytes or 0 for each in models if each.state in HELD)
    return Listing(
        incarnation="x", policy="lru", capacity_bytes=capacity, resident_bytes=taken, loading_bytes=0,
        freeing_bytes=0, leaked_bytes=0, free_bytes=max(0, capacity - taken), models=models,
    )  # fmt: skip


def inside(text: str) -> str:
    return text[1 : text.index("▏")]


def test_a_model_with_half_of_the_slice_has_half_of_the_bar() -> None:
    text = bar(listing(100, listed("fox", 50), listed("emu", 25)), WIDTH).plain
    assert inside(text) == f"{'emu':<14}▕{'fox':<29}▕{'·' * 15}"


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (listed("fox", 50, leased=True), "leased"),
        (listed("fox", 50), "idle"),
        (listed("fox", 50, "loading"), "being loaded"),
        (listed("fox", 50, "freeing"), "being unloaded"),
    ],
)
def test_its_colour_is_its_state(model: Listed, word: str) -> None:
    styles = [span.style for span in bar(listing(100, model), WIDTH).spans]
    assert styles == [dict(LEGEND)[word]]


@given(some.lists(some.tuples(some.integers(1, 400), some.sampled_from(HELD)), max_size=60))
def test_a_bar_is_never_wider_than_it_may_be(models: list[tuple[int, State]]) -> None:
    held = [listed(f"model-{number}", size, state) for number, (size, state) in enumerate(models)]
    assert len(inside(bar(listing(384, *held), WIDTH).plain)) == WIDTH


def test_other_peoples_words_are_not_read_as_markup() -> None:
    out = io.StringIO()
    show = Show(Console(file=out, width=100))
    show.failure("[bold]horn.npy[/nonsense] is not there")
    show.summary([("[red]a scene", "[blue]what came of it", 1.5)])
    assert "[bold]horn.npy[/nonsense] is not there" in out.getvalue()
    assert "[red]a scene" in out.getvalue()
    assert "[blue]what came of it" in out.getvalue()
