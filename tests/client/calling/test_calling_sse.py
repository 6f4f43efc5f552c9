"""Server-sent events, however they are cut into pieces."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.calling import replies
from tidegate.calling.replies import events
from tidegate.errors import UnreachableError

said = st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3), max_size=4)


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    place = 0
    for size in sizes:
        yield data[place : place + size]
        place += size
    yield data[place:]


@given(said, st.lists(st.integers(1, 20)), st.sampled_from(["\n", "\r\n"]))
def test_events_are_the_same_however_they_are_cut(what: list[dict[str, Any]], sizes: list[int], end: str) -> None:
    what = [each for each in what if set(each) != {"error"}]
    body = "".join(f"data: {json.dumps(each)}{end}{end}" for each in what).encode()
    assert list(events((piece for piece in cut(body, sizes) if piece), "here")) == what


def test_comments_names_and_several_lines_of_data_are_understood() -> None:
    body = b': hello\nevent: x\nid: 1\ndata: {"a":\ndata: 1}\n\n\n\ndata:{"b":2}\n\n'
    assert list(events(iter([body]), "here")) == [{"a": 1}, {"b": 2}]


def test_an_error_in_the_middle_is_raised_when_it_comes() -> None:
    found = events(iter([b'data: {"a":1}\n\ndata: {"error":"no\\nroom"}\n\n']), "here")
    assert next(found) == {"a": 1}
    with pytest.raises(UnreachableError, match=r"here: the model reported(.|\n)*no room"):
        next(found)


@pytest.mark.parametrize("body", [b"data: {\n\n", b"data: [1]\n\n", b"data: \xff\n\n"], ids=["half", "list", "bytes"])
def test_what_is_no_object_is_an_error(body: bytes) -> None:
    with pytest.raises(UnreachableError, match="no JSON object"):
        list(events(iter([body]), "here"))


@pytest.mark.parametrize("body", [b'data: {"a":1}', b'data: {"a":1}\n'])
def test_half_an_event_is_an_error_and_not_an_answer(body: bytes) -> None:
    with pytest.raises(UnreachableError, match="cut"):
        list(events(iter([body]), "here"))


def test_an_event_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "_MOST_BYTES", 1000)
    with pytest.raises(UnreachableError, match="more than"):
        list(events((b"x" * 100 for _ in range(1000)), "here"))
    with pytest.raises(UnreachableError, match="more than"):
        list(events((b"data: 1\n" for _ in range(1000)), "here"))
    assert len(list(events((b"data: {}\n\n" for _ in range(1000)), "here"))) == 1000
