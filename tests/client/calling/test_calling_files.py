"""Files with inputs that are damaged or misnamed are refused in words, and files with outputs hold all of them."""

import json
from pathlib import Path

import numpy
import pytest
from tidegate.calling.files import read_inputs, read_words, shown, write_outputs
from tidegate.calling.replies import Reply
from tidegate.calling.tensors import Answer, unpack
from tidegate.errors import UnreachableError, UsageError

TOO_LARGE = {"name": "X", "datatype": "UINT8", "shape": [1], "data": [300]}


def test_damaged_archives_of_arrays_are_refused(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "whole.npz", a=numpy.zeros(3000))
    content = bytearray((tmp_path / "whole.npz").read_bytes())
    content[200] ^= 255
    for name, said in (("flipped.npz", bytes(content)), ("cut.npz", bytes(content[:100]))):
        (tmp_path / name).write_bytes(said)
        with pytest.raises(UsageError, match="this is no NPZ"):
            read_inputs(str(tmp_path / name))


def test_arrays_by_the_wrong_name_are_refused_with_the_right_one(tmp_path: Path) -> None:
    numpy.save(tmp_path / "one.npy", numpy.zeros(3))
    numpy.savez(tmp_path / "some.npz", a=numpy.zeros(3))
    (tmp_path / "one.npy").rename(tmp_path / "other.npz")
    (tmp_path / "some.npz").rename(tmp_path / "other.npy")
    with pytest.raises(UsageError, match=r"let its own end in \.npy"):
        read_inputs(str(tmp_path / "other.npz"))
    with pytest.raises(UsageError, match=r"let its name end in \.npz"):
        read_inputs(str(tmp_path / "other.npy"))


def test_numbers_that_their_type_cannot_hold_are_refused(tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text(json.dumps({"inputs": [TOO_LARGE]}), "utf-8")
    with pytest.raises(UsageError, match="out of bounds"):
        read_inputs(str(tmp_path / "body.json"))
    with pytest.raises(UnreachableError, match="no answer to an inference request"):
        unpack(Reply(200, {}, json.dumps({"outputs": [TOO_LARGE]}).encode()), "here")


def test_texts_that_an_archive_would_cut_are_not_written(tmp_path: Path) -> None:
    answer = Answer({"Y": numpy.array([b"a", b"b\0"], object)}, "m", "1")
    with pytest.raises(UsageError, match="zero byte"):
        write_outputs(answer, tmp_path / "out.npz")
    write_outputs(answer, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text("utf-8"))["Y"]["data"] == ["a", "b\0"]


def test_people_see_infinities_as_such() -> None:
    assert [str(each) for each in shown(numpy.array([numpy.inf, -numpy.inf, numpy.nan, 1.5, 9]), 4)] == [
        "inf", "-inf", "nan", "1.5",
    ]  # fmt: skip
    assert shown(numpy.array([["\u00fc".encode(), b"\xff"]], object), 8) == ["\u00fc", "\ufffd"]


def test_what_was_meant_as_json_and_is_none_is_told() -> None:
    assert read_words(["A=[1, 2]", "B=hello", "C=1.5", 'D="[x"']) == {"A": [1, 2], "B": "hello", "C": 1.5, "D": "[x"}
    for value in ("[[1,2,", "{a: 1}", '"a'):
        with pytest.raises(UsageError, match=r"the input RAW is no JSON(.|\n)*--input 'RAW="):
            read_words([f"RAW={value}"])
