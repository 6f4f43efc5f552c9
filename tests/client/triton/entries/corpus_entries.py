"""The corpus as model repository entries, and the findings about each."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from tidegate.findings import Finding, in_order
from tidegate.triton.entries.checks import check_entry
from tidegate.triton.entries.entry import read_entry
from tritonclient.grpc.model_config_pb2 import ModelConfig

CORPUS = Path(__file__).parent / "corpus"
EXPECTED = CORPUS / "expected.txt"
GOOD, IGNORED, BAD, ELSEWHERE = KINDS = ("good", "ignored", "bad", "elsewhere")
Files = Mapping[str, str | bytes | Path]
"""Contents, or the files and directories that contain them, by path in the entry."""
MODEL = (CORPUS / "model.py").read_text("utf-8")
MODELS = {"onnxruntime": "model.onnx", "openvino": "model.xml", "pytorch": "model.pt"}
"""The file of each kind of model. No backend of the test's Triton reads it."""
TENSORS = """\
input { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] }
"""
CONFIG = f'backend: "python"\n{TENSORS}'

TEXTS = """\
backend: "python"
input { name: "IN" data_type: TYPE_STRING dims: [ 2 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] }
model_warmup { batch_size: 1 inputs { key: "IN" value { data_type: TYPE_STRING dims: 2 input_data_file: "t" } } }
"""
STATE = """\
sequence_batching { state { input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: 4 initial_state {
  name: "z" data_type: TYPE_FP32 dims: 4 data_file: "s"
} } }
"""


def texts(*message: str) -> bytes:
    return b"".join(len(each).to_bytes(4, "little") + each.encode() for each in message)


LAYOUTS: dict[str, dict[str, Files]] = {
    GOOD: {
        "file_of_another_name": {
            "config.pbtxt": f'{CONFIG}default_model_filename: "other.py"\n', "1/other.py": MODEL,
        },
        "labels": {
            "config.pbtxt": CONFIG.replace('name: "OUT"', 'name: "OUT" label_filename: "labels.txt"'),
            "1/model.py": MODEL, "labels.txt": "cat\ndog\n",
        },
        "warm_up_from_a_file": {
            "config.pbtxt": CONFIG + 'model_warmup { batch_size: 1 inputs { key: "IN" value { data_type: TYPE_FP32 '
            'dims: 4 input_data_file: "data" } } }\n',
            "1/model.py": MODEL, "warmup/data": "0123456789abcdef",
        },
        "warm_up_of_texts": {"config.pbtxt": TEXTS, "1/model.py": MODEL, "warmup/t": texts("one", "")},
        "warm_up_file_beside_its_folder": {
            "config.pbtxt": TEXTS.replace('"t"', '"../t"'), "1/model.py": MODEL, "t": texts("one", "two"),
            "warmup/other": "",
        },
        "state_from_a_file": {
            "config.pbtxt": CONFIG + STATE, "1/model.py": MODEL, "initial_state/s": "0123456789abcdef",
        },
        "labels_by_an_absolute_path": {
            "config.pbtxt": CONFIG.replace('name: "OUT"', 'name: "OUT" label_filename: "/labels.txt"'),
            "1/model.py": MODEL, "labels.txt": "cat\n",
        },
        "version_zero": {"config.pbtxt": CONFIG, "0/model.py": MODEL},
    },
    IGNORED: {
        "no_config": {"1/model.py": MODEL},
        "config_in_the_version": {"1/config.pbtxt": CONFIG, "1/model.py": MODEL},
        "config_in_the_version_too": {"config.pbtxt": CONFIG, "1/config.pbtxt": CONFIG, "1/model.py": MODEL},
        "version_with_a_zero_in_front_too": {"config.pbtxt": CONFIG, "01/model.py": MODEL, "2/model.py": MODEL},
        "folder_that_is_no_version": {"config.pbtxt": CONFIG, "1/model.py": MODEL, "old/model.py": MODEL},
        "two_versions_of_an_empty_policy": {
            "config.pbtxt": f"{CONFIG}version_policy {{ }}\n", "1/model.py": MODEL, "2/model.py": MODEL,
        },
        "other_configs": {"config.pbtxt": CONFIG, "1/model.py": MODEL, "configs/fast.pbtxt": CONFIG},
        "litter": {"config.pbtxt": CONFIG, "1/model.py": MODEL, ".ipynb_checkpoints/x": ""},
    },
    BAD: {
        "version_with_a_zero_in_front": {"config.pbtxt": CONFIG, "01/model.py": MODEL},
        "program_that_is_no_text": {"config.pbtxt": CONFIG, "1/model.py": "x = '\0'\n"},
        "warm_up_file_too_short": {
            "config.pbtxt": CONFIG + 'model_warmup { batch_size: 1 inputs { key: "IN" value { data_type: TYPE_FP32 '
            'dims: 4 input_data_file: "data" } } }\n',
            "1/model.py": MODEL, "warmup/data": "0123456789abcde",
        },
        "warm_up_of_texts_without_lengths": {"config.pbtxt": TEXTS, "1/model.py": MODEL, "warmup/t": "one, two"},
        "warm_up_of_texts_that_end_early": {
            "config.pbtxt": TEXTS, "1/model.py": MODEL, "warmup/t": texts("one", "two")[:-1],
        },
        "warm_up_of_too_few_texts": {"config.pbtxt": TEXTS, "1/model.py": MODEL, "warmup/t": texts("one")},
        "warm_up_of_too_many_texts": {"config.pbtxt": TEXTS, "1/model.py": MODEL, "warmup/t": texts("a", "b", "c")},
        "warm_up_of_a_length_cut_short": {
            "config.pbtxt": TEXTS, "1/model.py": MODEL, "warmup/t": texts("a", "b") + b"x",
        },
        "state_from_a_file_that_is_too_short": {
            "config.pbtxt": CONFIG + STATE, "1/model.py": MODEL, "initial_state/s": "0123456789abcde",
        },
        "environment_by_one_dollar_sign": {
            "config.pbtxt": CONFIG + 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: '
            '"$TRITON_MODEL_DIRECTORY/env.tar.gz" } }\n',
            "1/model.py": MODEL, "env.tar.gz": "",
        },
        "environment_without_activate": {
            "config.pbtxt": CONFIG + 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: '
            '"$$TRITON_MODEL_DIRECTORY/env" } }\n',
            "1/model.py": MODEL, "env/lib/x": "",
        },
        "environment_that_is_a_template": {
            "config.pbtxt": CONFIG + 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "${env}" } }\n',
            "1/model.py": MODEL,
        },
        "warm_up_file_beside_a_folder_that_is_not_there": {
            "config.pbtxt": TEXTS.replace('"t"', '"../t"'), "1/model.py": MODEL, "t": texts("one", "two"),
        },
        "no_version": {"config.pbtxt": CONFIG, "model.py": MODEL},
        "ensemble_without_a_version": {
            "config.pbtxt": f'platform: "ensemble"\n{TENSORS}ensemble_scheduling {{ step {{ model_name: "step" '
            'model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } }\n',
        },
        "empty_config_of_an_unknown_file": {"config.pbtxt": "", "1/weights.bin": ""},
        "litter_that_hides_the_backend": {"config.pbtxt": TENSORS, "1/model.py": MODEL, ".ipynb_checkpoints/x": ""},
        "program_with_a_slip": {"config.pbtxt": CONFIG, "1/model.py": "import os\n\nclass TritonPythonModel(:\n"},
        "program_without_the_class": {"config.pbtxt": CONFIG, "1/model.py": "class Model:\n    pass\n"},
        "config_that_is_no_text": {"config.pbtxt": "\x00\x01", "1/model.py": MODEL},
        "library_that_is_not_there": {"config.pbtxt": f'backend: "pytohn"\n{TENSORS}', "1/model.py": MODEL},
    },
    ELSEWHERE: {},
}  # fmt: skip


def names(kind: str) -> list[str]:
    return sorted([*(file.stem for file in (CORPUS / kind).glob("*.pbtxt")), *LAYOUTS[kind]])


def entry(folder: Path, config: str, files: Files | None = None, name: str = "m") -> Path:
    return write_files(folder / name, {"config.pbtxt": config, **({"1/model.py": MODEL} if files is None else files)})


def write_files(folder: Path, files: Files) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path) and content.is_dir():
            shutil.copytree(content, folder / path)
        else:
            content = content.read_bytes() if isinstance(content, Path) else content
            (folder / path).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def write(repository: Path) -> None:
    for kind in KINDS:
        for name, files in LAYOUTS[kind].items():
            write_files(repository / name, files)
        for file in (CORPUS / kind).glob("*.pbtxt"):
            version = repository / file.stem / "1"
            version.mkdir(parents=True)
            shutil.copyfile(file, version.parent / "config.pbtxt")
            _model(file.read_text("utf-8"), version)


def _model(config: str, version: Path) -> None:
    if "python" in config or not ("backend:" in config or "platform:" in config):
        (version / "model.py").write_text(MODEL, "utf-8")
        return
    for what, file in MODELS.items():
        if what in config:
            (version / file).parent.mkdir(exist_ok=True)
            (version / file).touch()
    (version.parent / "labels.txt").touch()


def configs(repository: Path) -> dict[str, ModelConfig]:
    read = {folder.name: read_entry(folder).config for folder in repository.iterdir()}
    return {name: config for name, config in read.items() if config is not None}


def found(repository: Path, name: str, models: Mapping[str, ModelConfig]) -> list[Finding]:
    entry = read_entry(repository / name)
    return in_order([*check_entry(entry, gpus=0), *check_entry(entry, gpus=0, models=models)])


def described(repository: Path) -> str:
    parts = []
    models = configs(repository)
    for kind in KINDS:
        for name in names(kind):
            parts.append("\n".join([f"== {kind}/{name}", *map(str, found(repository, name, models))]))
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        EXPECTED.write_text(described(Path(folder)), "utf-8")
