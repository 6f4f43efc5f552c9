"""SavedModel and GraphDef, as TensorFlow wrote them."""

from pathlib import Path

import pytest
from tidegate.errors import UsageError
from tidegate.triton.entries.frameworks.reading import DATA_TYPES, Tensor
from tidegate.triton.entries.frameworks.tensorflow import GraphDef, SavedModel, read_graph, read_saved_model

from tests.client.triton.entries.files import FILES


def test_a_saved_model_tells_the_tensors_of_its_signature() -> None:
    reading = read_saved_model(FILES / "savedmodel")
    assert reading.inputs == (Tensor("ids", "INT64", (-1, -1)), Tensor("image", "FP32", (-1, 3)))
    assert reading.outputs == (Tensor("score", "FP32", (-1,)), Tensor("text", "STRING", (-1, -1)))
    assert (reading.config.platform, dict(reading.config.parameters)) == ("tensorflow_savedmodel", {})
    assert {"model.savedmodel/saved_model.pb", "model.savedmodel/variables/variables.index"} <= {
        below for below, _ in reading.files
    }
    assert "25.03" in reading.notes[0]


def test_another_signature_is_named_to_triton() -> None:
    reading = read_saved_model(FILES / "savedmodel_other")
    assert reading.config.parameters["TF_SIGNATURE_DEF"].string_value == "other"
    assert reading.outputs == (Tensor("y", "FP32", ()),)


def test_every_type_that_triton_has_is_known(tmp_path: Path) -> None:
    numbers = {  # of tensorflow/core/framework/types.proto
        "BOOL": 10, "UINT8": 4, "UINT16": 17, "UINT32": 22, "UINT64": 23, "INT8": 6, "INT16": 5, "INT32": 3,
        "INT64": 9, "FP16": 19, "FP32": 1, "FP64": 2, "STRING": 7, "BF16": 14,
    }  # fmt: skip
    model = SavedModel.FromString((FILES / "savedmodel" / "saved_model.pb").read_bytes())
    signature = next(each for each in model.meta_graphs[0].signature_def if each.key == "serving_default").value
    signature.ClearField("inputs")
    for name, number in numbers.items():
        added = signature.inputs.add(key=name)
        added.value.dtype = number
        added.value.tensor_shape.dim.add(size=2)
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    told = read_saved_model(tmp_path).inputs
    assert {each.name for each in told} == set(numbers) == set(DATA_TYPES)
    assert all(each == Tensor(each.name, each.name, (2,)) for each in told)
    signature.inputs[0].value.dtype = 8  # complex
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match="TensorFlow type 8"):
        read_saved_model(tmp_path)


def test_another_tag_is_named_to_triton(tmp_path: Path) -> None:
    model = SavedModel.FromString((FILES / "savedmodel" / "saved_model.pb").read_bytes())
    model.meta_graphs[0].meta_info_def.tags[:] = ["special"]
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    assert read_saved_model(tmp_path).config.parameters["TF_GRAPH_TAG"].string_value == "special"


def test_several_signatures_without_the_usual_one_are_refused(tmp_path: Path) -> None:
    model = SavedModel.FromString((FILES / "savedmodel_other" / "saved_model.pb").read_bytes())
    more = model.meta_graphs[0].signature_def.add()
    more.CopyFrom(next(each for each in model.meta_graphs[0].signature_def if each.key == "other"))
    more.key = "another"
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match="'serving_default', but another, other"):
        read_saved_model(tmp_path)


def test_a_graph_with_shapes_tells_all() -> None:
    reading = read_graph(FILES / "graph_shapes.pb")
    assert (reading.inputs, reading.outputs, reading.missing) == (
        (Tensor("a", "FP32", (-1, 3)),), (Tensor("answer", "FP32", (-1, 1)),), "",
    )  # fmt: skip
    assert reading.files == (("model.graphdef", FILES / "graph_shapes.pb"),)


def test_a_graph_without_shapes_tells_its_inputs_and_the_names_of_its_outputs() -> None:
    reading = read_graph(FILES / "graph.pb")
    assert (reading.inputs, reading.outputs) == ((Tensor("a", "FP32", (-1, 3)),), ())
    assert "seem to be: answer" in reading.missing


def test_a_shape_of_unknown_rank_is_refused(tmp_path: Path) -> None:
    graph = GraphDef.FromString((FILES / "graph.pb").read_bytes())
    shape = next(each for each in graph.node[0].attr if each.key == "shape").value.shape
    shape.ClearField("dim")
    shape.unknown_rank = True
    (tmp_path / "g.pb").write_bytes(graph.SerializeToString())
    with pytest.raises(UsageError, match="unknown rank"):
        read_graph(tmp_path / "g.pb")


@pytest.mark.parametrize("content", [b"", b"\xff\xff\xff", b"{}"], ids=["empty", "noise", "text"])
def test_what_is_none_of_them_is_refused(tmp_path: Path, content: bytes) -> None:
    for name in ("saved_model.pb", "g.pb"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match="no SavedModel"):
        read_saved_model(tmp_path)
    with pytest.raises(UsageError, match="no GraphDef"):
        read_graph(tmp_path / "g.pb")
