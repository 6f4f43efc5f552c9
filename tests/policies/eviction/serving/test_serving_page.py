"""The page shows what sits in the slice, to people, and nobody's name is more than a text on it."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts.lease import LeaseOf
from tidegate_eviction.server import MemoryReading
from tidegate_eviction.serving.admin import SHOWN_MODELS, page

from .views import MIB, listed, view


class Seen(HTMLParser):
    """What a browser makes of a page: tags in balance, and their texts."""

    VOID = ("meta", "!doctype")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_each_model_in_memory_is_a_block_as_wide_as_its_share() -> None:
    text = page(
        view(
            listed("big", footprint_bytes=500 * MIB, leases=(LeaseOf(holder="p", seconds_left=9, in_flight=1),)),
            listed("small", footprint_bytes=100 * MIB),
            listed("gone", "cold", footprint_bytes=50 * MIB),
            leaked=30 * MIB,
        )
    )
    blocks = re.findall(r'<div class="(\w+)" style="flex:0 1 ([\d.]+)%"[^>]*>([^<]*)</div>', text)
    assert blocks == [("leased", "50.000", "big"), ("resident", "10.000", "small"), ("leaked", "3.000", "leaked")]
    assert "resident 600 MiB · leaked 30.0 MiB · free 400 MiB of 1000 MiB" in text


def test_each_model_has_a_row_with_its_last_use_and_leases() -> None:
    held = LeaseOf(holder="proxy-1", seconds_left=21.5, in_flight=3)
    text = page(
        view(
            listed("a", footprint_bytes=5 * MIB, idle_seconds=130, evictable_in=170, leases=(held,), pinned=True),
            listed("b", "quarantined", why="no memory"),
            listed("c", "queued", waiters=4),
        )
    )
    rows = [re.sub(r"<[^>]+>", "|", row) for row in re.findall("<tr>.*?</tr>", text)[1:]]
    assert "proxy-1 (22 s left, 3 in flight)" in rows[0]
    assert "2 min" in rows[0]
    assert "pinned" in rows[0]
    assert "4 wait" in rows[1]
    assert "no memory" in rows[2]


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_nobodys_text_shapes_the_page(name: str, holder: str, why: str) -> None:
    lease = LeaseOf(holder=holder, seconds_left=1, in_flight=0)
    with_texts = Seen(
        page(view(listed(name, why=why, footprint_bytes=MIB, leases=(lease,)), settings_error=why or "x"))
    )
    lease = LeaseOf(holder="h", seconds_left=1, in_flight=0)
    plain = Seen(page(view(listed("n", why="w", footprint_bytes=MIB, leases=(lease,)), settings_error="x")))
    assert with_texts.tags == plain.tags
    assert with_texts.attributes == plain.attributes
    assert not with_texts.open


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = page(view(listed("a")))
    assert not re.search(r"https?://|<script|<link|<img|@import|url\(", text)
    assert '<meta http-equiv="refresh" content="2">' in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"server_is_up": False}, "There is no connection to the server"),
        ({"settings_error": "capacityBytes: it is 0"}, "the last good one is: capacityBytes: it is 0"),
        ({"reading": MemoryReading()}, "Memory cannot be read"),
    ],
)
def test_what_is_wrong_is_said_first(more: dict[str, object], said: str) -> None:
    assert said in page(view(**more))
    assert said not in page(view())


def test_a_page_of_ten_thousand_models_ends() -> None:
    text = page(view(*(listed(f"model-{number}", "cold") for number in range(10_000))))
    assert text.count("<tr>") == SHOWN_MODELS + 1
    assert f"and {10_000 - SHOWN_MODELS} more" in text
