"""OpenVINO's representation, as OpenVINO wrote it."""

import shutil
from pathlib import Path

import pytest
from tidegate.errors import UsageError
from tidegate.triton.entries.frameworks.openvino import read
from tidegate.triton.entries.frameworks.reading import Tensor

from tests.client.triton.entries.files import FILES


def changed(tmp_path: Path, old: str, new: str) -> Path:
    text = (FILES / "openvino.xml").read_text()
    assert old in text
    (tmp_path / "m.xml").write_text(text.replace(old, new))
    shutil.copyfile(FILES / "openvino.bin", tmp_path / "m.bin")
    return tmp_path / "m.xml"


def test_tensors_go_by_the_first_of_their_names_as_the_backend_has_them() -> None:
    reading = read(FILES / "openvino.xml")
    assert reading.inputs == (Tensor("a_name", "FP32", (-1, 3)),)
    assert reading.outputs == (Tensor("probabilities", "FP32", (-1, 2)),)
    assert [below for below, _ in reading.files] == ["model.xml", "model.bin"]


def test_weights_must_be_there(tmp_path: Path) -> None:
    source = changed(tmp_path, "tiny", "tiny")
    (tmp_path / "m.bin").unlink()
    with pytest.raises(UsageError, match=r"copy m\.bin beside it"):
        read(source)


def test_a_tensor_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="set_names"):
        read(changed(tmp_path, ' names="a_name,x"', ""))


def test_a_type_that_triton_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'U4'"):
        read(changed(tmp_path, 'precision="FP32" names="a_name,x"', 'precision="U4" names="a_name,x"'))


def test_entities_are_refused_before_they_expand(tmp_path: Path) -> None:
    bomb = '<?xml version="1.0"?>\n<!DOCTYPE net [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    with pytest.raises(UsageError, match="DOCTYPE"):
        read(changed(tmp_path, '<?xml version="1.0"?>', bomb))


@pytest.mark.parametrize(
    ("old", "new"), [("</net>", ""), ("<dim>-1</dim>", "<dim>many</dim>"), ('type="Result"', 'type="Other"')],
    ids=["cut", "dim", "no-result"],
)  # fmt: skip
def test_what_is_broken_is_refused(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(UsageError, match="no OpenVINO model"):
        read(changed(tmp_path, old, new))
