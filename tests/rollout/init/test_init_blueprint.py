"""Values of the Domino blueprint's chart become a definition, and what does not is listed with its place."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rollout.init.blueprint import Slot, read_values
from rollout.init.repository import DEFINITION
from stacks.definition.datasets import EfsDataset
from stacks.load import parse
from stacks.validate import read_definition
from tests.counts import examples
from tests.rollout.conftest import Call

VALUES = """\
env:
  compute_namespace: team-compute
  namespace: domino-inference-dev
  name: inference
proxy:
  image: registry.test/blueprint-proxy:latest
  replicas: 3
triton_inference_server_1:
  name: loaded
  image: "nvcr.io/nvidia/tritonserver:26.08-py3"
  type: PreloadedTritonInferenceServerProxy
  dataset_id: 64d0aa11
triton_inference_server_2:
  name: called
  image: "nvcr.io/nvidia/tritonserver:26.08-py3"
  type: OnDemandTritonInferenceServerProxy
  dataset_id: 64d0aa11
istio:
  enabled: true
certmanager:
  duration: 4320h
  renewBefore: 360h
persistence:
  storageClass: shared
  accessMode: ReadWriteMany
  size: 1Ti
  useEFS: true
  efsFSID: fs-0a1b::fsap-0c2d
"""
LEFT = [
    "4:3: env.name", "6:3: proxy.image", "21:3: certmanager.duration", "22:3: certmanager.renewBefore",
    "27:3: persistence.useEFS",
]  # fmt: skip


@pytest.fixture
def values(tmp_path: Path) -> Path:
    path = tmp_path / "values.yaml"
    path.write_text(VALUES, "utf-8")
    return path


@pytest.mark.parametrize(
    ("namespace", "environment"), [("inference-v2", "inference-v2"), ("team-latest", "team-latest"), ("v2", "env-v2")]
)
def test_an_environment_is_named_as_the_registry_can_record_it(
    call: Call, values: Path, tmp_path: Path, namespace: str, environment: str
) -> None:
    values.write_text(VALUES.replace("domino-inference-dev", namespace), "utf-8")
    call("init", tmp_path / "platform", "--import", values, code=0)
    (stack,) = read_definition(tmp_path / "platform" / DEFINITION).stacks
    assert (stack.environment.name, stack.namespace) == (environment, namespace)


@pytest.mark.parametrize("gpu", [None, "NVIDIA-A100-SXM4-80GB", "NVIDIA-L4"])
def test_the_blueprints_values_become_a_definition_that_holds(
    call: Call, values: Path, tmp_path: Path, gpu: str | None
) -> None:
    platform = tmp_path / "platform"
    said = call("init", platform, "--import", values, *(("--gpu", gpu) if gpu else ()), code=0).out
    listed = said.partition("Not carried over:\n")[2].partition("Go on there:")[0]
    assert re.findall(rf"^  {values}:(\S+ \S+): \S", listed, re.MULTILINE) == LEFT
    call("check", platform / DEFINITION, code=0)
    (stack,) = read_definition(platform / DEFINITION).stacks
    assert (stack.environment.name, stack.namespace) == ("dev", "domino-inference-dev")
    loaded, called = stack.platform.servers
    assert (loaded.name, called.name) == ("loaded", "called")
    assert (loaded.pools[0].loading.mode, called.pools[0].loading.mode) == ("preload", "on-demand")
    paths = [getattr(server.repository, "path", "") for server in (loaded, called)]
    assert paths == ["models/pre-load", "models/ondemand-load"]
    (dataset,) = stack.platform.datasets
    assert isinstance(dataset, EfsDataset)
    assert dataset.domino is not None
    found = dataset.file_system_id, dataset.access_point_id, dataset.capacity, dataset.storage_class
    assert found == ("fs-0a1b", "fsap-0c2d", "1Ti", "shared")
    assert dataset.domino.dataset_id == "64d0aa11"
    assert stack.platform.proxy.replicas == 3
    assert stack.platform.domino is not None
    assert stack.platform.domino.compute_namespace == "team-compute"


@pytest.mark.parametrize("gpu", [None, "NVIDIA-L4"])
@pytest.mark.parametrize("word", ["prod", "production"])
def test_production_is_production_and_open_to_nobody_until_somebody_says_who(
    call: Call, values: Path, tmp_path: Path, gpu: str | None, word: str
) -> None:
    values.write_text(VALUES.replace("inference-dev", f"inference-{word}"), "utf-8")
    platform = tmp_path / "platform"
    call("init", platform, "--import", values, *(("--gpu", gpu) if gpu else ()), code=0)
    call("check", platform / DEFINITION, code=0)
    (stack,) = read_definition(platform / DEFINITION).stacks
    assert stack.environment.production
    (rule,) = stack.platform.proxy.access
    assert (rule.principals, rule.servers) == (("some-endpoint",), ("loaded", "called"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("dataset_id: 64d0aa11", "dataset_id: <DEV_DATASET_ID>", ':12:15: triton_inference_server_1.dataset_id: "<DEV'),
        ("fs-0a1b::fsap-0c2d", "fs-0a1b:/models:fsap-0c2d", ":28:12: persistence.efsFSID: "),
        ("replicas: 3", "replicas: three", ":7:13: proxy.replicas: expected a whole number"),
        ("type: OnDemand", "type: Dynamo", ":16:9: triton_inference_server_2.type: "),
        ("26.08-py3", "latest", "nvcr.io/nvidia/tritonserver:latest' moves with every push"),
        ("  namespace: domino-inference-dev\n", "", '"namespace" is missing'),
        ("domino-inference-dev", "Domino", ":3:14: env.namespace: "),
        ("domino-inference-dev", "default", ":3:14: env.namespace: 'default' belongs to Kubernetes"),
        ("name: called", "name: loaded", "values.yaml becomes does not hold"),
        ("istio:", "istio", ":18:1: this line is not complete"),
    ],
)
def test_what_is_wrong_in_the_values_is_said_at_its_line_and_nothing_is_written(
    call: Call, values: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in VALUES
    values.write_text(VALUES.replace(old, new), "utf-8")
    ended = call("init", tmp_path / "platform", "--import", values, code=2)
    assert said in ended.err
    assert "nothing was written" in ended.err
    assert not (tmp_path / "platform").exists()


def test_values_of_another_chart_are_told_how_all_values_are_had(call: Call, values: Path, tmp_path: Path) -> None:
    values.write_text("replicaCount: 1\n", "utf-8")
    ended = call("init", tmp_path / "platform", "--import", values, code=2)
    assert "helm get values <release> --all -o yaml" in ended.err
    assert "there is no such file" in call("init", tmp_path / "other", "--import", tmp_path / "x.yaml", code=2).err


def test_a_triton_that_is_too_old_is_replaced_and_said(call: Call, values: Path, tmp_path: Path) -> None:
    values.write_text(VALUES.replace("26.08-py3", "23.03-py3", 1), "utf-8")
    said = call("init", tmp_path / "platform", "--import", values, code=0).out
    assert f"{values}:10:3: triton_inference_server_1.image: older than 25.06" in said
    assert "23.03" not in (tmp_path / "platform" / DEFINITION).read_text("utf-8")


def test_what_says_nothing_or_what_is_so_anyway_is_not_listed() -> None:
    left = read_values(
        parse(VALUES.replace("istio:\n  enabled: true", "istio: {}"), "values.yaml"), Slot("{kind: cpu}")
    )[1]
    assert {problem.path for problem in left} == {line.rpartition(" ")[2] for line in LEFT}
    left = read_values(parse(VALUES.replace("ReadWriteMany", "ReadOnlyMany"), "values.yaml"), Slot("{kind: cpu}"))[1]
    assert "persistence.accessMode" in {problem.path for problem in left}


names = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,11}", fullmatch=True)
anything = st.one_of(st.integers(), st.booleans(), names, st.lists(names, max_size=2), st.just("ReadWriteMany"))


@examples(200)
@given(place=st.sampled_from(["", "env", "proxy", "persistence", "istio", "mine"]), key=names, value=anything)
def test_no_value_is_passed_over_in_silence(place: str, key: str, value: Any) -> None:
    tree = yaml.safe_load(VALUES)
    before = copy.deepcopy(tree)
    part = tree.setdefault(place, {}) if place else tree
    part.setdefault(key, value)
    if tree == before:
        return
    document = parse(yaml.safe_dump(tree, sort_keys=False), "values.yaml")
    told = {problem.path for problem in read_values(document, Slot("{kind: cpu}"))[1]}
    assert told == {line.rpartition(" ")[2] for line in LEFT} | {f"{place}.{key}".removeprefix(".")}
