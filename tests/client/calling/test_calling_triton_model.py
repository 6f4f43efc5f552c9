"""The client model as MLflow runs it: logged as code, light, and moved from dev to prod by a variable."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from tidegate.calling import MODEL_SCRIPT
from tidegate.errors import UsageError
from tidegate_contracts import routing
from tidegate_proxy.access.api_keys import new_key

from lab.local_plane.proxy import proxy
from lab.local_plane.triton import Triton
from tests.proxy.rigs.tables import POOL, SERVER

from .conftest import write_keyed

CONTEXT = {"parent_run_id": "0f", "inference_server_name": SERVER, "model_name": "versions", "model_version": "1"}


@pytest.fixture(scope="module")
def environments(real_triton: Triton, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Two proxies in front of one Triton: dev serves version 1 of `versions`, prod version 2. Both accept one key."""
    found = {"key": new_key()}
    with ExitStack() as stack:
        for number, name in enumerate(("dev", "prod"), 1):
            shares = (routing.VersionShare(version=number, weight=100),)
            split = routing.Model(name="versions", server=SERVER, pool=POOL, versions=shares)
            models: list[str | routing.Model] = [split, "add_sub"]
            root = write_keyed(tmp_path_factory.mktemp(name), real_triton, models, found["key"])
            found[name] = f"http://{stack.enter_context(proxy(root, settings={'api_keys': 'true'})).http}"
        yield found


@pytest.fixture
def endpoint(environments: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("DOMINO_INFERENCE_PROXY", environments["dev"])
    monkeypatch.setenv("TIDEGATE_API_KEY", environments["key"])
    return environments


def saved(folder: Path, **changes: str) -> str:
    """Save the client model as MLflow does when it logs it. Return its path."""
    from mlflow.pyfunc import save_model

    (folder / "model_context.json").write_text(json.dumps(CONTEXT | changes))
    save_model(
        folder / "model",
        python_model=str(MODEL_SCRIPT),
        artifacts={"model_context": str(folder / "model_context.json")},
        pip_requirements=["tidegate"],
    )
    return str(folder / "model")


@pytest.fixture(scope="module")
def triton_model() -> Any:
    from tidegate.calling import triton_model  # imports MLflow, which takes seconds

    return triton_model


def loaded(path: str) -> Any:
    from mlflow.pyfunc import load_model

    return load_model(path)


def test_it_is_logged_as_code_and_nothing_is_pickled(tmp_path: Path) -> None:
    folder = Path(saved(tmp_path))
    assert [file.name for file in folder.rglob("*") if file.suffix in (".pkl", ".pickle", ".joblib")] == []
    assert (folder / MODEL_SCRIPT.name).read_text() == MODEL_SCRIPT.read_text()


def test_a_variable_moves_it_to_prod(endpoint: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)
    found = []
    for name in ("dev", "prod"):
        monkeypatch.setenv("DOMINO_INFERENCE_PROXY", endpoint[name])
        answer = loaded(path).predict({"INPUT": [7]})
        found.append((answer["OUTPUT"].tolist(), answer["VERSION"].tolist()))
    assert found == [([7], [1]), ([7], [2])]


@pytest.mark.usefixtures("endpoint")
def test_mlflow_hands_over_tables_arrays_and_dicts(tmp_path: Path) -> None:
    import pandas

    model = loaded(saved(tmp_path, model_name="add_sub"))
    rows = {"INPUT0": [list(range(16))] * 2, "INPUT1": [[1] * 16] * 2}
    table = model.predict(pandas.DataFrame(rows, index=["x", "y"]))
    assert list(table.index) == ["x", "y"]
    assert table["OUTPUT0"]["y"].tolist() == list(range(1, 17))
    dicts = model.predict({name: numpy.asarray(value[0]) for name, value in rows.items()})
    assert dicts["OUTPUT1"].tolist() == [each - 1 for each in range(16)]


@pytest.mark.parametrize(("value", "version"), [("environment", 1), ("registered", 2), ("2", 2)])
@pytest.mark.usefixtures("endpoint")
def test_the_version_is_the_environments_the_registered_or_a_number(
    triton_model: Any, value: str, version: int
) -> None:
    model = triton_model.make_model(CONTEXT | {"model_version": "2"}, {"TIDEGATE_MODEL_VERSION": value})
    assert model.predict([7])["VERSION"].tolist() == [version]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIDEGATE_MODEL_VERSION", "newest"),
        ("TIDEGATE_MODEL_VERSION", "0"),
        ("TIDEGATE_TIMEOUT_SECONDS", "soon"),
        ("TIDEGATE_TIMEOUT_SECONDS", "-1"),
        ("TIDEGATE_TIMEOUT_SECONDS", "nan"),
    ],
)
@pytest.mark.usefixtures("endpoint")
def test_an_invalid_setting_is_named(triton_model: Any, name: str, value: str) -> None:
    with pytest.raises(UsageError, match=name):
        triton_model.make_model(CONTEXT, {name: value})


def test_an_invalid_context_is_refused(triton_model: Any, tmp_path: Path) -> None:
    context = SimpleNamespace(artifacts={"model_context": str(tmp_path / "context.json")})
    for content in ("", "[]"):
        (tmp_path / "context.json").write_text(content)
        with pytest.raises(UsageError, match=r"context\.json"):
            triton_model.TritonModel().load_context(context)
    with pytest.raises(UsageError, match="load_model"):
        triton_model.TritonModel().predict(None, numpy.ones(1))


LIGHT = """
import json, os, sys
import numpy
page = os.sysconf("SC_PAGE_SIZE")
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * page
before = resident()
import tidegate.calling.model
print(json.dumps({"bytes": resident() - before, "modules": sorted(sys.modules)}))
"""
HEAVY = {
    "aiohttp",
    "gevent",
    "geventhttpclient",
    "grpc",
    "mlflow",
    "obstore",
    "pandas",
    "pydantic",
    "requests",
    "rich",
    "tidegate_contracts",
    "tritonclient.grpc",
    "tritonclient.http",
    "typer",
}
MOST_BYTES = 24 << 20


def test_calling_brings_little_into_memory() -> None:
    if not Path("/proc/self/statm").exists():
        pytest.skip("NOT RUN: THERE IS NO /proc HERE, so no test measured the memory of a model endpoint.")
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True, timeout=60)
    value: dict[str, Any] = json.loads(done.stdout)
    assert HEAVY & set(value["modules"]) == set()
    # The rest of the client is not part of a registered model.
    own = {name for name in value["modules"] if name.startswith("tidegate.")}
    assert {name for name in own if not name.startswith("tidegate.calling")} == {"tidegate.errors", "tidegate.names"}
    assert value["bytes"] < MOST_BYTES
