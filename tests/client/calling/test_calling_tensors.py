"""Tensors over HTTP, in files and on the command line: the same bytes as from Triton's own client."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tidegate.calling.files import read_inputs, read_words, shown
from tidegate.calling.replies import Reply
from tidegate.calling.tensors import HEADER_LENGTH, Array, dtype_of, pack, pack_json, type_of, unpack
from tidegate.errors import UnreachableError, UsageError

TYPES = {
    "BOOL": numpy.bool_, "INT8": numpy.int8, "INT16": numpy.int16, "INT32": numpy.int32, "INT64": numpy.int64,
    "UINT8": numpy.uint8, "UINT16": numpy.uint16, "UINT32": numpy.uint32, "UINT64": numpy.uint64,
    "FP16": numpy.float16, "FP32": numpy.float32, "FP64": numpy.float64, "BF16": ml_dtypes.bfloat16,
}  # fmt: skip
numbers = st.sampled_from([name for name in TYPES if name != "BF16"]).flatmap(
    lambda name: arrays.arrays(TYPES[name], arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
texts = st.lists(st.binary(max_size=20), max_size=5).map(lambda each: _texts(*each))


def _texts(*each: bytes) -> Array:
    made = numpy.empty(len(each), object)
    made[:] = each
    return made


def answered(array: Array, before: bytes = b"") -> Reply:
    pieces, _ = pack({"OUT": array})
    head = json.loads(bytes(pieces[0]))["inputs"][0]
    message = {"model_name": "m", "model_version": "3", "outputs": [head]}
    packed = json.dumps(message).encode() + before
    return Reply(200, {HEADER_LENGTH.lower(): str(len(packed))}, bytearray(packed + b"".join(pieces[1:])))


@given(st.dictionaries(st.text("abc", min_size=1), numbers | texts, min_size=1, max_size=3))
def test_a_request_is_the_same_as_that_of_tritonclient(inputs: dict[str, Array]) -> None:
    import tritonclient.http as triton

    theirs = []
    for name, array in inputs.items():
        theirs.append(triton.InferInput(name, list(array.shape), type_of(array, name)))
        theirs[-1].set_data_from_numpy(numpy.asarray(array))
    body, length = triton.InferenceServerClient.generate_request_body(theirs)
    pieces, own = pack(inputs)
    sent = b"".join(pieces)
    expected = json.loads(body[:length] if length is not None else body)
    message = json.loads(sent[:own])
    assert message["parameters"] == expected["parameters"]
    for mine, other in zip(message["inputs"], expected["inputs"], strict=True):
        other["parameters"].setdefault("binary_data_size", 0)
        assert mine == other
    assert sent[own:] == (b"" if length is None else body[length:])


@given(numbers | texts, st.integers(0, 7))
def test_a_response_is_read_unchanged_at_any_alignment(array: Array, blanks: int) -> None:
    found = unpack(answered(array, before=b" " * blanks), "here")
    assert (found.model, found.version) == ("m", "3")
    assert found.outputs["OUT"].dtype == array.dtype
    numpy.testing.assert_array_equal(found.outputs["OUT"], array)
    assert found.outputs["OUT"].flags.aligned


@pytest.mark.parametrize("name", TYPES)
def test_every_type_has_a_counterpart(name: str) -> None:
    assert dtype_of(name) == TYPES[name]
    assert type_of(numpy.zeros(1, TYPES[name]), "x") == name


def test_arrays_are_sent_as_they_lie_and_are_not_copied() -> None:
    array = numpy.arange(1000, dtype=numpy.float32)
    pieces, _ = pack({"IN": array})
    assert numpy.shares_memory(numpy.frombuffer(pieces[1], numpy.float32), array)


def test_other_layouts_and_byte_orders_are_sent_as_the_protocol_has_them() -> None:
    array = numpy.arange(6, dtype=">i4").reshape(2, 3).T
    pieces, _ = pack({"IN": array})
    assert numpy.frombuffer(pieces[1], "<i4").tolist() == [0, 3, 1, 4, 2, 5]


def test_texts_of_numpy_are_texts_of_the_protocol() -> None:
    for array in (numpy.array(["ä", "bc"]), numpy.array(["ä".encode(), b"bc"]), numpy.array(["ä", "bc"], object)):
        pieces, _ = pack({"IN": array})
        assert bytes(pieces[1]) == b"\x02\0\0\0\xc3\xa4\x02\0\0\0bc"


@pytest.mark.parametrize("array", [numpy.zeros(1, complex), numpy.zeros(1, "M8[s]")], ids=["complex", "time"])
def test_types_that_no_model_accepts_are_refused_by_name(array: Array) -> None:
    with pytest.raises(UsageError, match="input IN"):
        pack({"IN": array})


def test_plain_json_is_equivalent() -> None:
    message = pack_json({"A": numpy.array([[1.5, 2]], numpy.float32), "B": numpy.array(["ä"])})
    assert message == {
        "inputs": [
            {"name": "A", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.0]},
            {"name": "B", "datatype": "BYTES", "shape": [1], "data": ["ä"]},
        ]
    }


@pytest.mark.parametrize("array", [numpy.array([numpy.nan]), _texts(b"\xff")], ids=["nan", "bytes"])
def test_values_that_json_does_not_have_are_refused(array: Array) -> None:
    with pytest.raises(UsageError, match="JSON"):
        pack_json({"IN": array})


def output(size: Any, shape: Any, kind: str = "FP32") -> bytes:
    about = {"name": "a", "datatype": kind, "shape": shape, "parameters": {"binary_data_size": size}}
    return json.dumps({"outputs": [about]}).encode()


BROKEN: dict[str, Any] = {
    "no-json": b"<html>",
    "no-outputs": b"{}",
    "a-list": b"[]",
    "no-bytes": b'{"outputs":[{"name":"a","datatype":"FP32","shape":[1],"data":[1]}]}',
    "few-bytes": output(8, [2]),
    "negative": output(-8, [2]),
    "wrong-shape": output(0, [3]),
    "no-type": output(0, [0], "FP1"),
    "huge": output(0, [99999999999999]),
    "no-shape": output(0, None),
    "bool-shape": output(0, [False]),
    "any-shape": output(0, [-1]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_invalid_answer_is_an_error(name: str) -> None:
    with pytest.raises(UnreachableError, match=r"here: not a response"):
        unpack(Reply(200, {}, BROKEN[name]), "here")


@given(st.binary(max_size=60), st.text(max_size=3))
def test_any_response_is_a_prediction_or_an_error(body: bytes, length: str) -> None:
    with suppress(UnreachableError):
        unpack(Reply(200, {HEADER_LENGTH.lower(): length}, body), "here")


def test_texts_cut_in_the_middle_are_an_error() -> None:
    reply = answered(_texts(b"hello"))
    whole = bytes(reply.body).replace(b"\x05\0\0\0hello", b"\xff\0\0\0hello")
    with pytest.raises(UnreachableError, match="not a response"):
        unpack(Reply(200, reply.headers, whole), "here")


def test_damaged_archives_of_arrays_are_refused(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "whole.npz", a=numpy.zeros(3000))
    content = bytearray((tmp_path / "whole.npz").read_bytes())
    content[200] ^= 255
    for name, message in (("flipped.npz", bytes(content)), ("cut.npz", bytes(content[:100]))):
        (tmp_path / name).write_bytes(message)
        with pytest.raises(UsageError, match="not a valid NPZ"):
            read_inputs(str(tmp_path / name))


def test_people_see_infinities_as_such() -> None:
    assert [str(each) for each in shown(numpy.array([numpy.inf, -numpy.inf, numpy.nan, 1.5, 9]), 4)] == [
        "inf", "-inf", "nan", "1.5",
    ]  # fmt: skip
    assert shown(numpy.array([["\u00fc".encode(), b"\xff"]], object), 8) == ["\u00fc", "\ufffd"]


def test_invalid_json_is_reported() -> None:
    assert read_words(["A=[1, 2]", "B=hello", "C=1.5", 'D="[x"']) == {"A": [1, 2], "B": "hello", "C": 1.5, "D": "[x"}
    for value in ("[[1,2,", "{a: 1}", '"a'):
        with pytest.raises(UsageError, match=r"the input RAW is not valid JSON(.|\n)*--input 'RAW="):
            read_words([f"RAW={value}"])
