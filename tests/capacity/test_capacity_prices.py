"""Prices come from a file, with sources and days, and from nowhere else. Those here are fictional."""

from pathlib import Path

import pytest

from capacity.prices import Prices, read_prices
from capacity.slices import find_gpu
from stacks.problems import DefinitionError

GOOD = """\
prices:
  NVIDIA-A100-SXM4-80GB: {perHour: 7, source: a fictional list, asOf: 2026-01-01}
  l4: {perHour: 0.5, currency: EUR, source: a fictional list, asOf: 2026-01-01}
"""


def read(tmp_path: Path, text: str) -> Prices:
    file = tmp_path / "prices.yaml"
    file.write_text(text, "utf-8")
    return read_prices(file)


def test_a_price_is_found_by_short_names_and_labels_alike(tmp_path: Path) -> None:
    prices = read(tmp_path, GOOD)
    found = [prices.of(find_gpu(said)) for said in ("a100-80gb", "NVIDIA-A100-PCIE-80GB", "NVIDIA-L4", "h100-80gb")]
    assert [price and price.per_hour for price in found] == [7, 7, 0.5, None]


def test_the_price_of_the_very_label_comes_first(tmp_path: Path) -> None:
    both = GOOD.replace("  l4:", "  NVIDIA-A100-PCIE-80GB: {perHour: 6, source: another, asOf: 2026-01-01}\n  l4:")
    prices = read(tmp_path, both)
    labels = ["NVIDIA-A100-PCIE-80GB", "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe", "NVIDIA-L4", "Unheard-Of"]
    assert [price and price.per_hour for price in map(prices.of_product, labels)] == [6, 7, 7, 0.5, None]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("perHour: 7", "perHour: cheap", 2, "perHour"),
        ("source: a fictional list, asOf", "asOf", 2, "source"),
        ("2026-01-01}\n  l4", "soon}\n  l4", 2, "a day written as"),
        ("EUR", "euros", 3, "a currency by its code"),
        ("prices:", "price:", 1, "price"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    with pytest.raises(DefinitionError) as error:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert f"prices.yaml:{line}:" in str(error.value)
    assert words in str(error.value)


def test_the_pages_example_is_a_file_of_prices_once_its_gaps_are_filled(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/capacity.md").read_text("utf-8")
    example = page.partition("### A file of prices")[2].partition("```yaml\n")[2].partition("```")[0]
    with pytest.raises(DefinitionError):  # so that nobody takes a gap for a price
        read(tmp_path, example)
    gaps = {
        "amount": "7",
        "where it is from": "a fictional list",
        "day on which it was so, such as 2026-11-01": "2026-01-01",
    }
    for gap, value in gaps.items():
        example = example.replace(f"<{gap}>", value)
    price = read(tmp_path, example).of(find_gpu("a100-80gb"))
    assert price is not None
    assert (price.per_hour, price.currency) == (7, "EUR")
