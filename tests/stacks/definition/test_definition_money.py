import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.definition.money import HOURS_A_MONTH, Cost, Hourly, cost, difference, money, price_of

A100, H100 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"


def test_the_most_expensive_product_counts_and_a_missing_price_makes_the_cost_unknown() -> None:
    prices: Hourly = {A100: {"gpu": 4.0, "1g.10gb": 0.6}, H100: {"gpu": 7.0}, "NVIDIA-L4": {"time-slicing": None}}
    assert price_of(prices, "gpu") == 7
    assert price_of(prices, "gpu", A100) == 4
    assert price_of(prices, "1g.10gb") == 0.6
    assert price_of(prices, "1g.10gb", H100) is None
    assert price_of({**prices, "NVIDIA-H200": {"gpu": None}}, "gpu") is None
    assert price_of(prices, "time-slicing") is None


def test_hours_of_different_slices_are_not_added_up() -> None:
    small, large = (cost(2, None, "USD", profile) for profile in ("1g.10gb", "2g.20gb"))
    assert difference(small, large) == "-1,460 device hours of 1g.10gb, +1,460 device hours of 2g.20gb"
    assert difference(small, small + large) == "+1,460 device hours"


def test_a_month_is_730_hours_and_devices_without_a_price_count_in_hours() -> None:
    assert HOURS_A_MONTH == 8760 / 12
    assert str(cost(1, 5.12 * 2 / 7, "USD")) == "$1,068"
    assert str(cost(2, None, "USD")) == "1,460 device hours"
    both_of_them = cost(1, 1.0, "EUR") + cost(1, None, "EUR")
    assert str(both_of_them) == "730 EUR and 730 device hours without a price"
    assert (both_of_them.month, both_of_them.devices) == (None, 2)


@pytest.mark.parametrize(
    ("amount", "signed", "words"),
    [(1067.9, False, "$1,068"), (-20, False, "-$20"), (20, True, "+$20"), (0.2, True, "$0"), (-0.2, True, "$0")],
)
def test_amounts_are_whole_and_differences_have_a_sign(amount: float, signed: bool, words: str) -> None:
    assert money(amount, signed=signed) == words
    assert money(1e6, "CHF", signed=True) == "+1,000,000 CHF"


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 9))))
def test_costs_add_up(parts: list[tuple[int, int | None]]) -> None:
    total = sum((cost(count, price, "EUR") for count, price in parts), Cost())
    assert total.devices == sum(count for count, _ in parts)
    assert total.unpriced == sum(count for count, price in parts if price is None)
    assert total.hourly == sum(count * price for count, price in parts if price is not None)
