"""Prices come from a file, with sources and days, and from nowhere else. Those here are fictional."""

from pathlib import Path

import pytest

from capacity.prices import Prices, read_prices
from capacity.slices import find_gpu
from stacks.problems import DefinitionError

GOOD = """\
currency: USD
prices:
  - {gpu: NVIDIA-A100-SXM4-80GB, perHour: 7, source: a fictional list, date: 2026-01-01}
  - {gpu: l4, perHour: 0.5, source: a fictional list, date: 2026-01-01}
"""


def read(tmp_path: Path, text: str) -> Prices:
    file = tmp_path / "prices.yaml"
    file.write_text(text, "utf-8")
    return read_prices(file)


def test_a_price_is_found_by_short_names_and_labels_alike(tmp_path: Path) -> None:
    prices = read(tmp_path, GOOD)
    found = [prices.of(find_gpu(said)) for said in ("a100-80gb", "NVIDIA-A100-PCIE-80GB", "NVIDIA-L4", "h100-80gb")]
    assert [price and price.per_hour for price in found] == [7, 7, 0.5, None]
    assert prices.text(1234.5) == "$1,234"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("perHour: 7", "perHour: cheap", 3, "perHour"),
        ("perHour: 7", "perHour: 0", 3, "greater than 0"),
        ("source: a fictional list, date", "date", 3, "source"),
        ("2026-01-01}\n  - {gpu: l4", "soon}\n  - {gpu: l4", 3, "a day written as"),
        ("currency: USD", "currency: dollars", 1, "currency by its three letters"),
        ("currency: USD", "curency: USD", 1, "curency"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    with pytest.raises(DefinitionError) as error:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert f"prices.yaml:{line}:" in str(error.value)
    assert words in str(error.value)
