"""What the picture of a plan shows, as its SVG has it: marks where they belong, words, and nothing over another."""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tidegate_eviction.simulate.report import figure

from capacity.lines import Line
from capacity.picture import draw, draw_on
from capacity.simulations import Figures

SVG = "{http://www.w3.org/2000/svg}"
Point = tuple[float, float]
TARGET = 0.99


def line(kind: str, money: float | None, share: float, busier: float | None = None, *, is_best: bool = False) -> Line:
    def met(part: float) -> Figures:
        return Figures(10_000, round(part * 10_000), 10_000)

    return Line(kind, kind, met(share), 104.0, money, is_best, None if busier is None else met(busier))


LINES = [
    line("1g.10gb", 100.0, 0.9, 0.8),
    line("1g.10gb", 200.0, 0.99),
    line("1g.10gb", 400.0, 0.995, 0.98, is_best=True),
    line("mixed", 300.0, 0.985),
    line("endpoints", 800.0, 1.0),
    line("today", 500.0, 0.95),
]


@pytest.fixture
def picture(tmp_path: Path) -> str:
    """The SVG of these lines."""
    files = draw(tmp_path, "A day", "USD a month", LINES, TARGET)
    assert [file.name for file in files] == ["plan.svg", "plan.png"]
    assert files[1].read_bytes().startswith(b"\x89PNG")
    return files[0].read_text("utf-8")


def marks(picture: str, name: str) -> list[Point]:
    """Return the places of the marks of a kind; y grows downwards."""
    groups = [each for each in ElementTree.fromstring(picture).iter(f"{SVG}g") if each.get("id") == name]
    return [(float(use.get("x", 0)), float(use.get("y", 0))) for group in groups for use in group.iter(f"{SVG}use")]


def target_line(picture: str) -> float:
    (group,) = (each for each in ElementTree.fromstring(picture).iter(f"{SVG}g") if each.get("id") == "target")
    (path,) = group.iter(f"{SVG}path")
    (height,) = {float(y) for y in re.findall(r"[ML] [\d.]+ ([\d.]+)", path.get("d", ""))}
    return height


def test_every_answer_has_a_mark_over_what_it_costs_as_high_as_it_answers_at_once(picture: str) -> None:
    plain = marks(picture, "answers-1g.10gb")
    (mixed,), (endpoints,), (today,) = (marks(picture, f"answers-{kind}") for kind in ("mixed", "endpoints", "today"))
    xs = [x for x, _ in (*plain[:2], mixed, plain[2], today, endpoints)]
    dollar = (xs[1] - xs[0]) / 100
    assert [round((x - xs[0]) / dollar) for x in xs] == [0, 100, 200, 300, 400, 700]
    heights = [y for _, y in (plain[0], today, mixed, plain[1], plain[2], endpoints)]
    assert heights == sorted(heights, reverse=True)


def test_the_target_is_a_line_and_what_just_meets_it_lies_on_it(picture: str) -> None:
    just = marks(picture, "answers-1g.10gb")[1]
    assert target_line(picture) == pytest.approx(just[1], abs=0.01)


def test_the_recommendation_is_marked_and_more_traffic_draws_it_down_where_it_stands(picture: str) -> None:
    (best,) = marks(picture, "recommended")
    assert best == marks(picture, "answers-1g.10gb")[2]
    assert [x for x, _ in marks(picture, "busier")] == [x for x, _ in marks(picture, "answers-1g.10gb")[::2]]
    _, busier = marks(picture, "busier")
    assert best[1] < target_line(picture) < busier[1]


def test_words_say_what_marks_and_axes_are(picture: str) -> None:
    words = re.findall(r"<!-- (.*?) -->", picture)
    for word in (
        "A day", "USD a month", "answered at once", "99 %", "all", "1g.10gb", "mixed answers", "today",
        "an endpoint for each model", "with 20 % more traffic", "recommended", "target 99.0 %",
    ):  # fmt: skip
        assert words.count(word) == 1, word


def test_a_line_without_a_cost_is_not_drawn(tmp_path: Path) -> None:
    free = Line("today", "today", LINES[0].figures, None)
    svg = draw(tmp_path, "A day", "USD a month", [*LINES[:5], free], TARGET)[0].read_text("utf-8")
    assert marks(svg, "answers-today") == []


@pytest.mark.parametrize("lines", [LINES, LINES[:1], [line("whole GPU", 12_345_678.0, 0.9999), *LINES]])
def test_no_label_lies_over_another_and_the_legend_beside_the_marks(tmp_path: Path, lines: Sequence[Line]) -> None:
    with figure(tmp_path / "plan.png", "A day", loc="center left", bbox_to_anchor=(1, 0.5)) as (axes,):
        draw_on(axes, "USD a month", lines, TARGET)
    whole = axes.figure
    whole.draw_without_rendering()
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        boxes = [each.get_window_extent() for each in labels if each.get_text() and each.get_visible()]
        low, high = axes.bbox.min, axes.bbox.max
        inside = [box for box in boxes if box.x1 >= low[0] - 200 and low[1] - 100 <= box.y0 <= high[1]]
        assert not [1 for place, one in enumerate(inside) for other in inside[place + 1 :] if one.overlaps(other)]
    legend = axes.get_legend().get_window_extent()
    assert legend.x0 >= axes.bbox.x1
    assert legend.x1 <= whole.bbox.x1
