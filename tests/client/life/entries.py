"""Entries that multiply by a factor from one of their files, so that the result shows which version answered."""

from pathlib import Path

from tidegate.registry import Golden

PROGRAM = """\
import pathlib
import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, args):
        here = pathlib.Path(args["model_repository"]) / args["model_version"]
        self.factor = float((here / "factor").read_text().split()[0])

    def execute(self, requests):
        answers = []
        for request in requests:
            data = triton.get_input_tensor_by_name(request, "INPUT").as_numpy()
            if data.min() < 0:
                raise ValueError("less than nothing")
            output = triton.Tensor("OUTPUT", (data * self.factor).astype(numpy.float32))
            answers.append(triton.InferenceResponse([output]))
        return answers
"""
CONFIG = """\
name: "{name}"
backend: "python"
max_batch_size: {batch}
input {{ name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] }}
output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [ 2 ] label_filename: "labels.txt" }}
instance_group {{ count: 1 kind: KIND_CPU }}
"""
REQUEST = {"inputs": [{"name": "INPUT", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}]}


def write_entry(folder: Path, factor: int, *, program: str = PROGRAM, batch: int = 4) -> Path:
    """Write an entry. The model's name is the directory's."""
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(program)
    (folder / "1" / "factor").write_text(f"{factor} ")
    # Because this is a file, Python writes nothing next to the program.
    (folder / "1" / "__pycache__").write_text("")
    (folder / "labels.txt").write_text("one\ntwo\n")
    (folder / "config.pbtxt").write_text(CONFIG.format(name=folder.name, batch=batch))
    return folder


def golden(factor: int) -> Golden:
    return Golden(request=REQUEST, outputs={"OUTPUT": [1.0 * factor, 2.0 * factor]})
