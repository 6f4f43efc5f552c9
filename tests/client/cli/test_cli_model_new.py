"""`tidegate model new` and `tidegate model show`, as people and programs call them."""

import json
import re
from pathlib import Path

import pytest
import typer
from google.protobuf import text_format
from tidegate.cli.model_new import new
from tidegate.cli.model_show import show
from tidegate.errors import ExitCode
from tritonclient.grpc.model_config_pb2 import ModelConfig
from typer.testing import CliRunner, Result

from tests.client.triton.entries.files import FILES

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(new)
app.command()(show)
DOUBLE = str(FILES / "double.py")
TENSORS = ("--input", "x:FP32:3", "--output", "y:FP32:3")
EVERYTHING = """
    --max-batch-size 8 --ragged x --optional x --instances 2:cpu --rate-limiter R=1:global --rate-priority 2
    --preferred-batch-size 4 --preferred-batch-size 8 --queue-delay 1ms --priority-levels 2 --default-priority 1
    --queue-size 5 --queue-timeout 1s --timeout-action delay --allow-timeout-override --queue-policy 1:size=2
    --version-policy latest:2 --warm-up zero --warm-up-batch-size 2 --warm-up-dims x:3 --response-cache
    --parameter k=v
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def config(folder: Path) -> ModelConfig:
    return text_format.Parse((folder / "config.pbtxt").read_text(), ModelConfig())


def test_an_entry_is_made_and_shown(tmp_path: Path) -> None:
    done = run("new", "made", str(FILES / "openvino.xml"), "--into", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert f"{tmp_path}/made is there: openvino" in done.stdout
    assert re.search(r"input +│ a_name +│ FP32\[\?,3\]", done.stdout)
    assert "--max-batch-size N" in done.stderr
    again = run("show", str(tmp_path / "made"))
    assert done.stdout.splitlines()[1:] == again.stdout.splitlines()


def test_programs_get_json(tmp_path: Path) -> None:
    done = run("new", "made", DOUBLE, "--into", str(tmp_path), *TENSORS, "--json")
    told = json.loads(done.stdout)
    assert told["framework"] == "python"
    assert told["folder"] == str(tmp_path / "made")
    assert told["entry"]["inputs"] == [{"name": "x", "data_type": "FP32", "shape": [3], "notes": []}]
    assert json.loads(run("show", str(tmp_path / "made"), "--json").stdout) == told["entry"]


def test_every_option_reaches_the_configuration(tmp_path: Path) -> None:
    done = run("new", "made", DOUBLE, "--into", str(tmp_path), *TENSORS, *EVERYTHING.split())
    assert done.exit_code == 0, done.output
    assert config(tmp_path / "made") == text_format.Parse(
        """
        name: "made" backend: "python" max_batch_size: 8 version_policy { latest { num_versions: 2 } }
        input { name: "x" data_type: TYPE_FP32 dims: 3 allow_ragged_batch: true optional: true }
        output { name: "y" data_type: TYPE_FP32 dims: 3 }
        instance_group {
          count: 2 kind: KIND_CPU rate_limiter { resources { name: "R" global: true count: 1 } priority: 2 }
        }
        dynamic_batching {
          preferred_batch_size: [4, 8] max_queue_delay_microseconds: 1000 priority_levels: 2 default_priority_level: 1
          default_queue_policy {
            timeout_action: DELAY default_timeout_microseconds: 1000000 allow_timeout_override: true max_queue_size: 5
          }
          priority_queue_policy { key: 1 value { max_queue_size: 2 } }
        }
        parameters { key: "k" value { string_value: "v" } }
        model_warmup {
          name: "zero inputs" batch_size: 2 count: 1
          inputs { key: "x" value { data_type: TYPE_FP32 dims: 3 zero_data: true } }
        }
        response_cache { enable: true }
        """,
        ModelConfig(),
    )


def test_sequences_are_chosen_by_options(tmp_path: Path) -> None:
    words = (
        "--max-batch-size 4 --sequence-batching oldest --sequence-idle 5s --max-candidates 3 --sequence-control S:start"
    )
    state = ("--sequence-state", "i:o:FP32:2")
    done = run("new", "made", DOUBLE, "--into", str(tmp_path), *TENSORS, *words.split(), *state)
    assert done.exit_code == 0, done.output
    assert not config(tmp_path / "made").HasField("dynamic_batching")
    batching = config(tmp_path / "made").sequence_batching
    assert batching.oldest.max_candidate_sequences == 3
    assert (batching.control_input[0].name, batching.state[0].input_name) == ("S", "i")


def test_any_other_field_comes_from_a_file_and_options_count_over_it(tmp_path: Path) -> None:
    (tmp_path / "more.pbtxt").write_text(
        'max_batch_size: 2 input { name: "x" data_type: TYPE_INT32 dims: 5 } optimization { eager_batching: true }'
    )
    settings = ("--settings", str(tmp_path / "more.pbtxt"))
    done = run("new", "made", DOUBLE, "--into", str(tmp_path), *TENSORS, "--max-batch-size", "4", *settings)
    assert done.exit_code == 0, done.output
    made = config(tmp_path / "made")
    assert made.max_batch_size == 4
    assert made.input[0] == text_format.Parse('name: "x" data_type: TYPE_FP32 dims: 3', type(made.input[0])())
    assert made.optimization.eager_batching


def test_entries_become_an_ensemble_that_is_drawn(tmp_path: Path) -> None:
    for name, given, made in (("first", "x", "y"), ("second", "y", "z")):
        done = run(
            "new", name, DOUBLE, "--into", str(tmp_path), "--input", f"{given}:FP32:3", "--output", f"{made}:FP32:3"
        )
        assert done.exit_code == 0, done.output
    done = run("new", "chain", str(tmp_path / "first"), str(tmp_path / "second"), "--into", str(tmp_path),
               "--link", "first.y=between", "--link", "second.y=between")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "y ← between (of first)" in done.stdout
    assert done.stdout.splitlines()[2] == "input  x  FP32[3]"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("new", "made", "nothing.onnx"), ExitCode.USAGE, "nothing.onnx: there is no such file or folder"),
        (("new", "made", DOUBLE), ExitCode.USAGE, "--input NAME:TYPE:DIMS"),
        (("new", "../made", DOUBLE), ExitCode.USAGE, "no name for a model"),
        (("new", "made", DOUBLE, "--framework", "pyton"), ExitCode.USAGE, "say python"),
        (("new", "made", DOUBLE, *TENSORS, "--warm-up", "ones"), ExitCode.USAGE, "zero, random"),
        (("new", "made", DOUBLE, *TENSORS, "--labels", "y"), ExitCode.USAGE, "OUTPUT=FILE"),
        (("new", "made", DOUBLE, *TENSORS, "--settings", "no.pbtxt"), ExitCode.USAGE, "no.pbtxt"),
        (
            ("new", "made", DOUBLE, *TENSORS, "--settings", str(FILES / "weights.pt")),
            ExitCode.USAGE,
            "no text in UTF-8",
        ),
        (
            ("new", "made", DOUBLE, *TENSORS, "--preferred-batch-size", "4"),
            ExitCode.USAGE,
            "Triton would refuse this entry",
        ),
        (("show", "nothing"), ExitCode.USAGE, "there is no such folder"),
    ],
    ids=["source", "tensors", "name", "framework", "warm-up", "labels", "settings", "binary", "refused", "show"],
)
def test_what_is_wrong_is_one_message_and_an_exit_code(
    tmp_path: Path, words: tuple[str, ...], code: ExitCode, said: str
) -> None:
    into = ("--into", str(tmp_path)) if words[0] == "new" else ()
    done = run(*words, *into)
    assert done.exit_code == code
    assert said in done.stderr
    assert "Traceback" not in done.output
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []
