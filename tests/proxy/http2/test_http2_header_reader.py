"""Header blocks, judged by the library `hpack`."""

from contextlib import suppress

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate_proxy.http2.frames import MOST_HEAD_BYTES, Fields, Http2Error
from tidegate_proxy.http2.header_reader import HeaderReader

NAMES = st.sampled_from((b":path", b"accept", b"custom"))
# Entries of 50 to 53 bytes, of which tables of 99 to 106 bytes hold one or two.
VALUES = st.sampled_from((b"x" * 12, b"y" * 12, b"z" * 13)) | st.binary(max_size=300)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=8)
SIZES = st.integers(99, 106) | st.sampled_from((0, 4096))


def reader(most_bytes: int = MOST_HEAD_BYTES) -> HeaderReader[Fields]:
    return HeaderReader(lambda fields: fields, most_bytes)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.none() | SIZES, FIELDS, st.booleans())))
def test_the_fields_are_those_that_the_peer_encoded(
    blocks: list[tuple[int | None, Fields, bool]],
) -> None:
    encoder, reads = hpack.Encoder(), reader()
    for size, fields, is_huffman in blocks:
        if size is not None:
            encoder.header_table_size = size
        block = encoder.encode(fields, huffman=is_huffman)
        assert reads.read(block) == fields


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=40)))
def test_any_bytes_are_accepted_only_if_the_library_finds_the_same_fields(blocks: list[bytes]) -> None:
    decoder, reads = hpack.Decoder(MOST_HEAD_BYTES), reader()
    with suppress(Http2Error):
        for block in blocks:
            found = reads.read(block)
            assert found == [tuple(field) for field in decoder.decode(block, raw=True)]


AB, AC, FIRST, SECOND = b"@\1a\1b", b"@\1a\1c", b"\xbe", b"\xbf"  # Two entries of 34 bytes, and indexes of entries.


@pytest.mark.parametrize(
    "blocks",
    [
        [AB, FIRST, AC, FIRST], [AB, FIRST, b" ", FIRST], [AB, AC, SECOND], [b"\x3f\x24" + AB + AC, SECOND],
        [b"\x3f\x25" + AB + AC, SECOND], [b"\x3f\xe2\x1f"], [b"\x80"], [b"\xbd"], [AB + b" "], [AB, b"\x0f\x2f\1b"],
        [b"\x3f\x81\x80\x80\x80\x80\0"], [b"\0\1a\2b"], [b"\0\1a\x81\x1f"], [b"\0\1a\x81\0"],
    ],
)  # fmt: skip
def test_a_block_is_accepted_exactly_if_the_library_accepts_it(blocks: list[bytes]) -> None:
    decoder, reads = hpack.Decoder(), reader()
    *before, last = blocks
    for block in before:
        assert reads.read(block) == decoder.decode(block, raw=True)
    try:
        expected = decoder.decode(last, raw=True)
    except hpack.HPACKError:
        with pytest.raises(Http2Error):
            reads.read(last)
    else:
        assert reads.read(last) == expected


def test_a_block_changes_the_size_of_the_table_twice_at_most() -> None:
    small, large, field = b"\x20", b"\x3f\xe1\x1f", b"\x82"
    assert reader().read(small + large + field) == [(b":method", b"GET")]
    for block in (small * 3 + field, large * 3 + field, small * 32_000, (small + large) * 2):
        with pytest.raises(Http2Error, match="cannot be decompressed"):
            reader().read(block)


def test_a_short_block_with_long_fields_is_refused() -> None:
    reads = reader(10_000)
    assert reads.read(b"\x40\x01a\x7f\xff\x0e" + b"x" * 2046)
    with pytest.raises(Http2Error, match="too long"):
        reads.read(b"\xbe" * 5)
