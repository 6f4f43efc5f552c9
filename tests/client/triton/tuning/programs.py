"""Triton and perf_analyzer as a user has them: programs that can be run by their names; and models to measure."""

from dataclasses import dataclass
from pathlib import Path

from lab.local_plane.triton import Installed
from tests.client.triton.entries.corpus_entries import entry

SLEEPER = """\
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep({seconds})
        arrays = [pb_utils.get_input_tensor_by_name(each, "IN").as_numpy() for each in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for array in arrays]
"""
ONE_ONLY = """\
import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        if json.loads(args["model_config"])["instance_group"][0]["count"] > 1:
            raise ValueError("there is room for one only")

    def execute(self, requests):
        if not {answers}:
            raise ValueError("the weights are upside down")
        arrays = [pb_utils.get_input_tensor_by_name(each, "IN").as_numpy() for each in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for array in arrays]
"""
TALKER = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for each in requests:
            sender = each.get_response_sender()
            tensor = pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(each, "IN").as_numpy())
            sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@dataclass(frozen=True)
class Programs:
    perf_analyzer: Path
    tritonserver: Path
    backends: str  # The argument that Triton needs to find its backends.


def write_programs(folder: Path, have: Installed) -> Programs:
    """Write programs that run the real ones with the libraries that they need."""
    perf = {"LD_LIBRARY_PATH": str(have.libraries)}
    return Programs(
        _program(folder / "perf_analyzer", have.perf_analyzer, have.variables | perf),
        _program(folder / "tritonserver", have.server, have.variables),
        f"--backend-directory={have.backends}",
    )


def write_program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)
    return path


def write_model(repository: Path, name: str, program: str, more: str = "", batch: int = 8, dims: str = "4") -> Path:
    """Write the entry of a model with one input and one output; return its folder."""
    tensors = "".join(
        f'{side} {{ name: "{tensor}" data_type: TYPE_FP32 dims: [ {dims} ] }}\n'
        for side, tensor in (("input", "IN"), ("output", "OUT"))
    )
    config = f'name: "{name}"\nbackend: "python"\nmax_batch_size: {batch}\n{tensors}{more}'
    return entry(repository, config, {"1/model.py": program}, name)


def _program(path: Path, real: Path, variables: dict[str, str]) -> Path:
    words = " ".join(f"{name}='{value}'" for name, value in variables.items())
    return write_program(path, f'exec env {words} "{real}" "$@"')
