"""Seconds, counted as Prometheus counts them."""

from hypothesis import given
from hypothesis import strategies as st
from tidegate_service.histogram import Histogram

seconds = st.floats(0, 1000, allow_nan=False)


@given(st.lists(seconds, min_size=1, unique=True).map(sorted), st.lists(seconds))
def test_each_bucket_has_all_that_took_at_most_so_long(bounds: list[float], taken: list[float]) -> None:
    histogram = Histogram(bounds)
    for each in taken:
        histogram.add(each)
    expected: list[tuple[str, float]] = [(str(bound), sum(each <= bound for each in taken)) for bound in bounds]
    assert histogram.cumulative() == [*expected, ("+Inf", len(taken))]
    assert histogram.seconds == sum(taken)
