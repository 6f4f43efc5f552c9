import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tidegate.errors import BusyError, NotFoundError, TidegateError, UnreachableError, UsageError
from tidegate.registry import Golden, Record, RegisteredVersion, Registry
from tidegate.registry.manifest import manifest_of
from tidegate.registry.registration import checked
from tidegate_contracts.manifest import ENTRY_VERSION

from .conftest import EACH_WAY, ROOT, World
from .entries import contents, entry, noise, program, registered

FILES = {
    "1/weights/large.bin": noise(1, 9 << 20),
    "1/empty": b"",
    "1/.keep": b"",
    "labels.txt": b"cat\ndog\n",
    "configs/weiß (1) ~ a+b.pbtxt": b"name: 'x'",
}


@EACH_WAY
def test_an_entry_comes_back_as_it_went_in(world: World, tmp_path: Path, way: str) -> None:
    root = entry(tmp_path, f"round-{way}", FILES)
    registry = world.registry(way)
    sent: list[int] = []
    golden = Golden(request={"inputs": []}, outputs={"OUT": [1.0]})
    version = registry.register(root, registered_by="anna", server="preload", golden=golden, progress=sent.append)
    assert version == registry.version(root.name, 1) == registry.version(root.name, "latest")
    assert (version.registered_by, version.client_model) == ("anna", f"{root.name}-client/1")
    assert registry.golden(version) == golden

    got: list[int] = []
    manifest = registry.fetch(version, tmp_path / "fetched", got.append)
    assert contents(tmp_path / "fetched") == contents(root)
    assert manifest == registry.manifest(version) == manifest_of(root)
    assert manifest.digest() == version.manifest_sha256
    assert sum(sent) == sum(got) == manifest.size
    assert registry.read_file(version, "labels.txt") == b"cat\ndog\n"
    with pytest.raises(NotFoundError, match="has no file 1/other"):
        registry.read_file(version, "1/other")


@EACH_WAY
def test_the_same_content_is_the_same_version(world: World, tmp_path: Path, way: str) -> None:
    registry = world.registry(way)
    root = entry(tmp_path, f"twice-{way}")
    first = registered(registry, root)
    again = registry.register(root, registered_by="bob")
    assert again == first
    (root / "1").rename(root / "7")  # the registry assigns the number
    assert registered(registry, root).number == 1
    (root / "7" / "model.py").write_bytes(program(2))
    second = registered(registry, root)
    assert (second.number, second.client_model) == (2, f"{root.name}-client/2")
    assert [version.number for version in registry.versions(root.name)] == [1, 2]
    assert [file.path for file in registry.manifest(second).files] == [f"{ENTRY_VERSION}/model.py", "config.pbtxt"]
    with_golden = registry.register(root, registered_by="anna", golden=Golden(request={"inputs": [1]}))
    assert with_golden.number == 2
    assert registry.golden(with_golden) == Golden(request={"inputs": [1]})
    assert registry.golden(first) is None


def test_runs_versions_and_tags_are_those_that_domino_reads(world: World, tmp_path: Path) -> None:
    version = world.registry().register(entry(tmp_path, "tagged"), registered_by="anna", server="preload")
    client = world.client()
    parent = client.get_run(version.run_id)
    assert parent.data.tags["is_parent"] == version.tags["is_parent"] == "true"
    assert parent.info.status == "FINISHED"
    model = client.get_model_version("tagged-client", "1")
    assert model.tags["is_triton_client"] == "true"
    child = client.get_run(model.run_id or "")
    assert child.data.tags["mlflow.parentRunId"] == version.run_id
    assert child.info.status == "FINISHED"
    named = {"parent_run_id": version.run_id, "triton_model_name": "tagged", "triton_model_version": "1"}
    assert child.data.params == named
    (context,) = world.keys(f"{child.info.run_id}/artifacts/model/artifacts/model_context.json")
    message = json.loads(world.store.client().get_object(Bucket="models", Key=context)["Body"].read())
    of_model = {"inference_server_name": "preload", "model_name": "tagged", "model_version": "1"}
    assert message == {"parent_run_id": version.run_id} | of_model
    assert not [key for key in world.keys("") if key.endswith((".pkl", ".pickle"))]


def test_an_endpoint_loads_the_client_model_with_nothing_of_ours_installed(world: World, tmp_path: Path) -> None:
    registered(world.registry(), entry(tmp_path, "endpoint"))
    program = (
        "import logging, mlflow, sys\n"
        "logging.disable()\n"
        "model = mlflow.pyfunc.load_model('models:/endpoint-client/1')\n"
        "import tidegate.calling\n"
        "print(tidegate.__file__)\n"
        "try: mlflow.pyfunc.load_model('models:/endpoint/1').predict([1])\n"
        "except NotImplementedError as error: print(error)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"MLFLOW_TRACKING_URI": world.server.uri, "DOMINO_INFERENCE_PROXY": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    place, word = done.stdout.splitlines()[-2:]
    assert f"{os.sep}code{os.sep}tidegate{os.sep}" in place
    assert not place.startswith(str(ROOT))
    assert "`endpoint" not in word
    assert "call it through its client model" in word


def test_a_version_is_named_by_number_alias_or_as_the_latest_and_stays_pinned(world: World, tmp_path: Path) -> None:
    registry = world.registry()
    root = entry(tmp_path, "named")
    first = registered(registry, root)
    (root / "1/model.py").write_bytes(program(2))
    second = registered(registry, root)
    assert registry.alias("named", "prod") is None
    registry.set_alias("named", "prod", 1, expect=None)
    pinned = registry.version("named", "prod")
    assert pinned.number == 1
    registry.set_alias("named", "prod", 2, expect=1)
    assert registry.manifest(pinned) == registry.manifest(first)
    assert registry.version("named", "prod").number == registry.version("named", "2").number == second.number
    for expect, words in ((1, "is at version 2, but was expected at version 1"), (None, "was expected not to exist")):
        with pytest.raises(BusyError, match=words):
            registry.set_alias("named", "prod", 1, expect=expect)
    registry.set_alias("named", "prod", 2, expect=1)  # already done by another run
    registry.tag(second, "reviewed", "yes")
    assert registry.version("named", 2).tags["reviewed"] == "yes"


def test_a_missing_name_is_reported_with_the_existing_ones(world: World, tmp_path: Path) -> None:
    registry = world.registry()
    registered(registry, entry(tmp_path, "there"))
    registry.set_alias("there", "dev", 1, expect=None)
    for model, which, words in (
        ("ther", 1, "did you mean there"),
        ("quite-another", 1, "\n  do: check the spelling, or create it with `tidegate register`"),
        ("there", 9, "its versions are 1"),
        ("there", 10**30, "its versions are 1"),
        ("there", "9" * 5000, "its aliases are dev"),
        ("there", "prod", "its aliases are dev"),
    ):
        with pytest.raises(NotFoundError, match=words):
            registry.version(model, which)
    with pytest.raises(UsageError, match="cannot be a model's name"):
        registry.version("../there", 1)
    world.client().create_model_version("there", "s3://models/elsewhere")
    with pytest.raises(UsageError, match="not a model for an inference server"):
        registry.version("there", 2)
    assert [version.number for version in registry.versions("there")] == [1]


def test_history_is_written_once_and_read_in_order(world: World, tmp_path: Path) -> None:
    registry = world.registry()
    version = registered(registry, entry(tmp_path, "history"))
    (begun,) = registry.records("history")
    assert (begun.what, begun.who, begun.manifest_sha256) == ("register", "anna", version.manifest_sha256)
    message: dict[str, Any] = {"model": "history", "version": 1, "who": "bob", "environment": "dev"}
    events = [
        Record(what="deploy", when=datetime.now(UTC) + timedelta(seconds=number), **message) for number in range(3)
    ]
    for event in (events[1], events[0], events[2]):
        registry.append_record(version, event)
    registry.append_record(version, events[0])  # the same record again is one more file
    with pytest.raises(ValueError, match="of another version"):
        registry.append_record(version, events[0].model_copy(update={"version": 2}))
    assert registry.records("history") == [begun, events[0], events[0], events[1], events[2]]


def test_another_golden_request_for_the_same_content_is_reported_and_recorded(world: World, tmp_path: Path) -> None:
    registry = world.registry()
    root = entry(tmp_path, "golden")
    one, other = (Golden(request={"inputs": []}, outputs={"OUT": [value]}) for value in (1.0, 2.0))
    caught: list[str] = []

    def register(who: str, golden: Golden | None) -> RegisteredVersion:
        return registry.register(root, registered_by=who, golden=golden, tell=caught.append)

    for golden in (one, None, one):
        register("anna", golden)
    assert (caught, [each.what for each in registry.records("golden")]) == ([], ["register"])
    assert registry.golden(register("bob", other)) == other
    (message,) = caught
    assert f"had the golden request {one.digest()[:12]}. From now on it is tested with {other.digest()[:12]}" in message
    record = registry.records("golden")[-1]
    assert (record.what, record.version, record.who) == ("golden", 1, "bob")
    assert record.note == f"golden request {one.digest()} → {other.digest()}"


def test_an_entry_that_triton_would_not_serve_is_not_registered(tmp_path: Path) -> None:
    with pytest.raises(TidegateError, match=r"no server would serve this entry[\s\S]*2024-11-01"):
        checked(entry(tmp_path, "unservable", {"2024-11-01/model.py": program()}), "unservable")
    config = b"""backend: "python"
input [{ name: "A" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "B" data_type: TYPE_FP32 dims: [ 1 ] optional: true }]
output { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }
"""
    root = entry(tmp_path, "tensors", {"config.pbtxt": config})
    a, b, c = ({"name": name, "shape": [1], "datatype": "FP32", "data": [1]} for name in "ABC")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"request": {"inputs": [a, c]}}, r"names an input 'C' at request.inputs\[1\]"),
        ({"request": {"inputs": [b]}}, "lacks the input A in request.inputs"),
        ({"request": {"inputs": [a]}, "outputs": {"RESULT": [1]}}, "names an output 'RESULT' at outputs.RESULT"),
        ({"request": {"inputs": [a], "outputs": [{"name": "X"}]}}, r"an output 'X' at request.outputs\[0\]"),
    ]
    for message, words in wrong:
        with pytest.raises(UsageError, match=words) as caught:
            checked(root, "tensors", Golden.model_validate(message))
        assert caught.value.where == str(root)
    checked(root, "tensors", Golden(request={"inputs": [a], "outputs": [{"name": "OUT"}]}, outputs={"OUT": [1]}))


def test_undeployments_are_recorded_where_earlier_clients_do_not_read(world: World, tmp_path: Path) -> None:
    registry, before = world.registry("in-a-folder"), {*world.folder.rglob("*.json")}
    version = registered(registry, entry(tmp_path, "taken-out"))
    message = {"model": "taken-out", "version": version.number, "who": "anna", "when": datetime.now(UTC)}
    for what in ("deploy", "undeploy"):
        registry.append_record(version, Record.model_validate(message | {"what": what}))
    assert sorted(each.what for each in registry.records("taken-out")) == ["deploy", "register", "undeploy"]
    written = {path.name.split("-")[1]: path.parent for path in {*world.folder.rglob("2*-*.json")} - before}
    assert written["deploy"].name == "records" != written["undeploy"].name


def test_a_registrant_counts_until_a_proven_one_registers_the_same(world: World, tmp_path: Path) -> None:
    registry = world.registry()
    root = entry(tmp_path, "proven")
    first = registry.register(root, registered_by="root", unproven="it is the login name")
    assert (first.registered_by, first.unproven) == ("root", "it is the login name")
    assert registry.register(root, registered_by="eve", unproven="so it seems").registered_by == "root"
    second = registered(registry, root)
    assert (second.number, second.registered_by, second.unproven) == (1, "anna", "")
    assert registry.register(root, registered_by="bob").registered_by == "anna"


@pytest.mark.parametrize("scheme", ["http", "HTTP"])
def test_a_missing_registry_is_reported_immediately(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "s3cr3t-token")
    with pytest.raises(UnreachableError, match="MLFLOW_TRACKING_URI") as caught:
        Registry(f"{scheme}://anna:pass-w0rd@127.0.0.1:9/mlflow")
    assert "pass-w0rd" not in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert "127.0.0.1:9/mlflow" in str(caught.value)
