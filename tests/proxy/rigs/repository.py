"""A model repository for a real Triton, with models for its Python backend that need no GPU."""

from collections.abc import Sequence
from pathlib import Path

from lab.local_plane.repository import Model

SOURCES = Path(__file__).parent / "models"


def _add_sub(name: str, data_type: str) -> Model:
    inputs, outputs = ([(f"{kind}{number}", data_type, "16") for number in range(2)] for kind in ("INPUT", "OUTPUT"))
    return Model(name, SOURCES / "add_sub.py", inputs, outputs)


def _echo(name: str, data_type: str) -> Model:
    return Model(name, SOURCES / "echo.py", [("INPUT", data_type, "-1")], [("OUTPUT", data_type, "-1")])


_SEQUENCES = """\
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "END" control { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } }
  control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
}
"""

_VERSIONS = """\
version_policy { all { } }
parameters { key: "tidegate.alias.champion" value { string_value: "1" } }
"""

MODELS = (
    _add_sub("add_sub", "TYPE_INT32"),
    _add_sub("add_sub_fp32", "TYPE_FP32"),
    _echo("echo", "TYPE_FP32"),
    _echo("echo_bytes", "TYPE_STRING"),
    _echo("slow", "TYPE_FP32"),
    Model(
        "repeat",
        SOURCES / "repeat.py",
        [("IN", "TYPE_INT32", "-1"), ("DELAY", "TYPE_UINT32", "-1")],
        [("OUT", "TYPE_INT32", "1"), ("INDEX", "TYPE_UINT32", "1")],
        "model_transaction_policy { decoupled: true }\n",
    ),
    # Its instances can process many sequences. Triton sends all requests of a sequence to the same one.
    Model(
        "accumulate",
        SOURCES / "accumulate.py",
        [("INPUT", "TYPE_INT32", "1")],
        [("OUTPUT", "TYPE_INT32", "1")],
        _SEQUENCES,
        64,
    ),
    Model(
        "versions",
        SOURCES / "versions.py",
        [("INPUT", "TYPE_INT32", "-1")],
        [("OUTPUT", "TYPE_INT32", "-1"), ("VERSION", "TYPE_INT32", "1")],
        _VERSIONS,
        versions=(1, 2),
    ),
)
"""The models. 3 × 224 × 224 numbers through `echo` are 600 KB in each direction."""


def write(repository: Path, models: Sequence[Model] = MODELS) -> Path:
    for model in models:
        model.write(repository)
    return repository
