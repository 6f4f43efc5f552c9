"""A real Triton serves exported entries, with their own tensors and batches, and gives the answers of the originals.

Its ONNX Runtime backend comes with NVIDIA's images only, and in no package. So the entry's `backend` is exchanged for
the Python backend with a program that runs the entry's `model.onnx` by ONNX Runtime: all else is the entry's own.
"""

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tidegate.registry.golden import Golden, read_golden

from lab.local_plane.triton import Triton, installed, triton
from tests.proxy.rigs.pytest_rigs import not_run

from .models import CLASSES, ROWS, TARGETS, export, sample, saved

SERVE = Path(__file__).parent / "files/serve.py"
MODELS = ("texts", "table", "trees")


def exported(folder: Path) -> None:
    """Export a model with texts as answers, one of a table with texts in it, and a forest."""
    import pandas
    from sklearn import compose, ensemble, linear_model, pipeline, preprocessing

    forest = ensemble.RandomForestClassifier(10, random_state=1)
    logistic, columns = linear_model.LogisticRegression, compose.make_column_transformer
    table = pandas.DataFrame({"age": ROWS[:, 0], "city": CLASSES[TARGETS], "rooms": TARGETS + 1})
    encoded = columns((preprocessing.StandardScaler(), ["age"]), (preprocessing.OneHotEncoder(), ["city", "rooms"]))
    of_table = pipeline.make_pipeline(encoded, logistic()).fit(table, TARGETS)
    sources = {
        "texts": (saved(logistic().fit(ROWS, CLASSES[TARGETS]), folder / "1"), "--input", sample(folder)),
        "table": (saved(of_table, folder / "2", input_example=table[:40]),),
        "trees": (saved(forest.fit(ROWS, TARGETS), folder / "3"), "--input", sample(folder)),
    }
    for name, (source, *words) in sources.items():
        done = export(source, folder / "models" / name, "--trusted", *words)
        assert done.exit_code == 0, done.output


def has_its_backend() -> bool:
    return (installed().backends / "onnxruntime").is_dir()


def exchange_backend(entry: Path, packages: Path) -> None:
    shutil.copyfile(SERVE, entry / "1/model.py")
    text = (entry / "config.pbtxt").read_text()
    own = ('backend: "onnxruntime"', 'platform: "onnxruntime_onnx"')
    assert all(each in text for each in own)
    text = text.replace(own[0], 'backend: "python"').replace(own[1], "")
    found = f'parameters {{ key: "packages" value {{ string_value: "{packages}" }} }}\n'
    (entry / "config.pbtxt").write_text(f"{text}{found}instance_group {{ kind: KIND_CPU }}\n")


@pytest.fixture(scope="module")
def server(exporters: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Triton, Path]]:
    folder = tmp_path_factory.mktemp("served")
    exported(folder)
    with not_run("A REAL TRITON"):
        for name in MODELS if not has_its_backend() else ():
            exchange_backend(folder / "models" / name, exporters)
        with triton(folder, folder / "models") as running:
            yield running, folder / "models"


def asked(server: Triton, name: str, request: dict[str, Any]) -> dict[str, Any]:
    url = f"http://{server.http}/v2/models/{name}/infer"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(request).encode()), timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def golden_of(entry: Path) -> Golden:
    return read_golden((entry / "golden.json").read_bytes(), "golden.json")


@pytest.mark.parametrize("name", MODELS)
def test_a_real_triton_answers_the_golden_request_as_the_original_did(name: str, server: tuple[Triton, Path]) -> None:
    running, models = server
    golden = golden_of(models / name)
    assert golden.differences(asked(running, name, golden.request)) == []


def test_a_real_triton_takes_the_batches_that_the_entry_says_and_no_larger_ones(server: tuple[Triton, Path]) -> None:
    running, models = server
    request = golden_of(models / "trees").request
    (only,) = request["inputs"]
    for rows in (1, 64):
        many = only | {"shape": [rows, 5], "data": only["data"][:5] * rows}
        label = asked(running, "trees", {"inputs": [many]})["outputs"][0]
        assert label["shape"] in ([rows], [rows, 1])
    with pytest.raises(urllib.error.HTTPError, match="400"):
        asked(running, "trees", {"inputs": [only | {"shape": [65, 5], "data": only["data"][:5] * 65}]})
