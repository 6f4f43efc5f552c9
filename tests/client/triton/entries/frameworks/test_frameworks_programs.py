"""What is served by programs, libraries and engines: the files that go along, and what is said of them."""

import json
import os
from pathlib import Path

import pytest
from tidegate.errors import UsageError
from tidegate.triton.entries.frameworks import dali, llm, opaque, python
from tidegate.triton.entries.frameworks.python import files_of
from tidegate.triton.entries.frameworks.reading import Tensor
from tritonclient.grpc.model_config_pb2 import ModelInstanceGroup

from tests.client.triton.entries.files import FILES

SERVED = "class TritonPythonModel:\n    def execute(self, requests): return []\n"


def test_everything_beside_a_program_comes_along_but_leavings(tmp_path: Path) -> None:
    for name in ("model.py", "lib/part.py", "__pycache__/model.pyc", ".git/HEAD", "lib/__pycache__/p.pyc", ".hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "linked").symlink_to(tmp_path / "model.py")
    assert [below for below, _ in files_of(tmp_path)] == [".hidden", "lib/part.py", "linked", "model.py"]
    assert files_of(tmp_path / "model.py") == (("model.py", tmp_path / "model.py"),)


@pytest.mark.parametrize("kind", ["pipe", "dangling", "folder"])
def test_what_cannot_be_copied_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "model.py").write_text("")
    if kind == "pipe":
        os.mkfifo(tmp_path / "odd")
    else:
        (tmp_path / "odd").symlink_to(tmp_path if kind == "folder" else tmp_path / "nothing")
    with pytest.raises(UsageError, match=r"odd: it is no file"):
        files_of(tmp_path)


def test_a_program_that_completes_itself_needs_no_tensors(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(SERVED)
    assert python.read(tmp_path).missing
    (tmp_path / "model.py").write_text(
        SERVED + "    @staticmethod\n    def auto_complete_config(config): return config\n"
    )
    assert not python.read(tmp_path).missing
    assert any("EXECUTION_ENV_PATH" in note for note in python.read_jax(tmp_path).notes)


def test_a_library_names_its_backend(tmp_path: Path) -> None:
    (tmp_path / "libtriton_my-own.so").write_bytes(b"\x7fELF")
    (tmp_path / "table.bin").write_bytes(b"\x00")
    reading = opaque.read_library(tmp_path)
    assert reading.config.backend == "my-own"
    assert [below for below, _ in reading.files] == ["libtriton_my-own.so", "table.bin"]
    (tmp_path / "libtriton_my-own.so").rename(tmp_path / "other.so")
    with pytest.raises(UsageError, match="name the library so"):
        opaque.read_library(tmp_path)


def test_a_serialised_pipeline_tells_its_tensors_and_its_batch() -> None:
    reading = dali.read(FILES / "model.dali")
    assert reading.inputs == (Tensor("DALI_INPUT_0", "UINT8", (-1, -1, -1)),)
    assert reading.outputs == (Tensor("__Cast_1", "FP32", (-1,)),)
    assert reading.config.max_batch_size == 16
    assert reading.files == (("model.dali", FILES / "model.dali"),)


def test_a_pipeline_that_does_not_say_its_types_leaves_them_to_dali(tmp_path: Path) -> None:
    content = (FILES / "model.dali").read_bytes()
    (tmp_path / "any.dali").write_bytes(content.replace(b"dtype", b"other", 1))
    reading = dali.read(tmp_path / "any.dali")
    assert (reading.inputs, reading.outputs, reading.config.max_batch_size) == ((), (), 0)
    assert "DALI tells Triton" in reading.notes[0]
    (tmp_path / "any.dali").write_bytes(b"\xff\xff")
    with pytest.raises(UsageError, match="no DALI pipeline"):
        dali.read(tmp_path / "any.dali")


def test_a_pipelines_program_keeps_the_name_that_dali_looks_for(tmp_path: Path) -> None:
    assert dali.read(tmp_path / "pipe.py").files[0][0] == "dali.py"


@pytest.mark.parametrize(
    ("model", "said"),
    [("facebook/opt-125m", "from Hugging Face"), ("/weights/opt", "where Triton runs"), ("./opt", "where Triton runs")],
    ids=["hub", "absolute", "relative"],
)
def test_vllm_is_told_where_its_weights_come_from(tmp_path: Path, model: str, said: str) -> None:
    (tmp_path / "model.json").write_text(json.dumps({"model": model}))
    (tmp_path / "multi_lora.json").write_text("{}")
    reading = llm.read_vllm(tmp_path)
    assert any(said in note for note in reading.notes)
    assert reading.config.instance_group[0].kind == ModelInstanceGroup.KIND_MODEL
    assert reading.config.model_transaction_policy.decoupled
    assert [below for below, _ in reading.files] == ["model.json", "multi_lora.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model": 1}', "{"], ids=["empty", "list", "none", "number", "cut"])
def test_a_model_json_that_names_no_model_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(UsageError):
        llm.read_vllm(tmp_path)


def test_an_engine_of_tensorrt_llm_brings_its_limits(tmp_path: Path) -> None:
    (tmp_path / "rank0.engine").write_bytes(b"\x00")
    (tmp_path / "config.json").write_text(json.dumps({"build_config": {"max_batch_size": 16, "max_beam_width": 2}}))
    reading = llm.read_tensorrt_llm(tmp_path)
    assert reading.config.max_batch_size == 16
    assert reading.config.parameters["max_beam_width"].string_value == "2"
    assert {each.name for each in reading.inputs if not each.optional} == {
        "input_ids", "input_lengths", "request_output_len",
    }  # fmt: skip
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="no configuration of a TensorRT-LLM engine"):
        llm.read_tensorrt_llm(tmp_path)
