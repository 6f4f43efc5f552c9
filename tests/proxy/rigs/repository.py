"""A model repository for a real Triton: models in its Python backend, which need no GPU."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "models"
Tensor = tuple[str, str, str]
"""Name, data type and dimensions, as in config.pbtxt."""


@dataclass(frozen=True)
class Model:
    """One model: which program it runs, and its configuration."""

    name: str
    program: str
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    more: str = ""
    batch: int = 0
    versions: Sequence[int] = (1,)

    def write(self, repository: Path) -> None:
        """Write it into a repository."""
        folder = repository / self.name
        for version in self.versions:
            (folder / str(version)).mkdir(parents=True)
            shutil.copyfile(SOURCES / f"{self.program}.py", folder / str(version) / "model.py")
        (folder / "config.pbtxt").write_text(self._config(), "utf-8")

    def _config(self) -> str:
        parts = [f'name: "{self.name}"\nbackend: "python"\nmax_batch_size: {self.batch}\n']
        for kind, tensors in (("input", self.inputs), ("output", self.outputs)):
            for name, data_type, dims in tensors:
                parts.append(f'{kind} {{ name: "{name}" data_type: {data_type} dims: [ {dims} ] }}\n')
        parts.append("instance_group { count: 1 kind: KIND_CPU }\n")
        return "".join([*parts, self.more])


def _add_sub(name: str, data_type: str) -> Model:
    inputs, outputs = ([(f"{kind}{number}", data_type, "16") for number in range(2)] for kind in ("INPUT", "OUTPUT"))
    return Model(name, "add_sub", inputs, outputs)


def _echo(name: str, data_type: str) -> Model:
    return Model(name, "echo", [("INPUT", data_type, "-1")], [("OUTPUT", data_type, "-1")])


_SEQUENCES = """\
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "END" control { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } }
  control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
}
"""

MODELS = (
    _add_sub("add_sub", "TYPE_INT32"),
    _add_sub("add_sub_fp32", "TYPE_FP32"),
    _echo("echo", "TYPE_FP32"),
    _echo("echo_bytes", "TYPE_STRING"),
    Model(
        "repeat",
        "repeat",
        [("IN", "TYPE_INT32", "-1"), ("DELAY", "TYPE_UINT32", "-1")],
        [("OUT", "TYPE_INT32", "1"), ("INDEX", "TYPE_UINT32", "1")],
        "model_transaction_policy { decoupled: true }\n",
    ),
    # Its instances may answer many sequences; Triton sends all requests of one to the same.
    Model("accumulate", "accumulate", [("INPUT", "TYPE_INT32", "1")], [("OUTPUT", "TYPE_INT32", "1")], _SEQUENCES, 64),
    Model(
        "versions",
        "versions",
        [("INPUT", "TYPE_INT32", "-1")],
        [("OUTPUT", "TYPE_INT32", "-1"), ("VERSION", "TYPE_INT32", "1")],
        "version_policy { all { } }\n",
        versions=(1, 2),
    ),
)
"""What there is to call. 3 × 224 × 224 numbers through `echo` are 600 KB each way."""


def write(repository: Path, models: Sequence[Model] = MODELS) -> Path:
    """Write models into a repository, and return it."""
    for model in models:
        model.write(repository)
    return repository
