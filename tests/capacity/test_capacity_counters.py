"""Counters show when calls were: each call is found once, between the two scrapes around it."""

import math
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from capacity.counters import LOOKBACK_SECONDS, Added, Counters
from capacity.prometheus import Series

EVERY = 30.0
START, END = 2 * LOOKBACK_SECONDS, 2 * LOOKBACK_SECONDS + 3600.0
COUNTED, PRESENT = "calls_total", "in_flight"


def scrapes(begins: float, ends: float) -> list[float]:
    return [EVERY * number for number in range(math.floor(begins / EVERY) + 1, math.floor(ends / EVERY) + 1)]


def series_of(pod: str, times: Sequence[float], calls: Sequence[float]) -> tuple[Series, Series]:
    """The series of a process: one from its start, and a counter that appears with its first call."""
    counted = [(at, float(sum(call <= at for call in calls))) for at in times]
    return (
        Series({"__name__": PRESENT, "pod": pod}, [(at, 0.0) for at in times]),
        Series({"__name__": COUNTED, "pod": pod, "model": "ant"}, [(at, value) for at, value in counted if value]),
    )


def between(each: Series, begin: float, end: float) -> Series:
    return Series(each.labels, [(at, value) for at, value in each.samples if begin <= at <= end])


def found(pairs: Sequence[tuple[Series, Series]], cuts: Sequence[float]) -> list[Added]:
    """The increases in these, fed in pieces. Each piece begins with the last sample of the previous one."""
    counters = Counters(frozenset({"model"}))
    added: list[Added] = []
    for begin, end in pairwise(cuts):
        pieces = [[between(each, begin, end) for each in pair] for pair in pairs]
        counters.scraped(present for present, _ in pieces if present.samples)
        added += counters.added(counted for _, counted in pieces if counted.samples)
    return added


TIMES = st.lists(st.floats(0.0, END - 2 * EVERY), max_size=20).map(sorted)
CUTS = st.lists(st.integers(0, int(END / EVERY)).map(lambda each: each * EVERY), max_size=8).map(
    lambda each: sorted({0.0, END, *each})
)


@given(TIMES, TIMES, st.floats(START, END - 4 * EVERY), CUTS)
def test_each_call_is_found_once_in_its_place_however_the_time_is_cut(
    steady: list[float], later: list[float], begins: float, cuts: list[float]
) -> None:
    later = [at for at in later if at > begins]
    pairs = [series_of("steady", scrapes(0.0, END), steady), series_of("new", scrapes(begins, END), later)]
    added = found(pairs, cuts)
    for pod, calls in ("steady", steady), ("new", later):
        of_pod = [each for each in added if each.labels["pod"] == pod]
        expected = [at for at in calls if pod == "new" or at > EVERY]  # the first values of all are older
        assert sum(each.number for each in of_pod) == len(expected)
        assert all(each.number == sum(each.since < at <= each.until for at in expected) for each in of_pod)
        assert all(each.until - each.since == EVERY for each in of_pod)


def test_a_counter_that_missed_a_scrape_restarts_even_if_it_is_not_lower() -> None:
    present = Series({}, [(EVERY * number, 0.0) for number in range(4)])
    counted = Series({}, [(0.0, 1.0), (EVERY, 1.0), (3 * EVERY, 2.0)])
    assert [each[1:] for each in found([(present, counted)], [0.0, END])] == [(2 * EVERY, 3 * EVERY, 2)]


def test_a_first_scrape_adds_no_calls_from_before_it() -> None:
    """Processes are not scraped for the first time at the same moment."""
    pairs = [
        (
            Series({"pod": pod}, [(at, 0.0), (at + EVERY, 0.0)]),
            Series({"pod": pod}, [(at, 5000.0), (at + EVERY, 5001.0)]),
        )
        for pod, at in (("a", 0.0), ("b", 17.0))
    ]
    assert [each.number for each in found(pairs, [0.0, END])] == [1, 1]


def test_a_process_that_was_not_scraped_for_a_while_counts_over_all_of_it() -> None:
    present = Series({}, [(0.0, 0.0), (EVERY, 0.0), (3000.0, 0.0)])
    counted = Series({}, [(0.0, 1.0), (EVERY, 1.0), (3000.0, 11.0)])
    assert [each[1:] for each in found([(present, counted)], [0.0, 1800.0, END])] == [(EVERY, 3000.0, 10)]


def test_a_counter_that_a_remote_storage_has_rounded_adds_no_part_of_a_call() -> None:
    times = scrapes(0.0, 10 * EVERY)
    present, counted = series_of("steady", times, [2 * EVERY])
    blurred = Series(counted.labels, [(at, value + 1e-3 * place) for place, (at, value) in enumerate(counted.samples)])
    assert {each.number for each in found([(present, blurred)], [0.0, END])} == {1}
