import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tidegate.errors import UsageError
from tidegate.findings import errors
from tidegate.life.checks import against_environments, check_fits, check_staged, memory_unknown, refuse
from tidegate.life.target import Target, targets
from tidegate.publishing import Repository
from tidegate.triton.kind import TritonKind
from tidegate.triton.publishing import config
from tidegate_contracts.environments import ModelFacts, PoolFacts, Promotion
from tidegate_contracts.manifest import Manifest, ManifestFile, make_manifest

from tests.client.triton.publishing.opening import open_repository

from .entries import CONFIG, write_entry
from .test_life_target import MODEL, dataset, known, plane

MIB = 1 << 20


def manifest(size: int) -> Manifest:
    return make_manifest(MODEL, [
        ManifestFile(path="1/model.onnx", size=size, sha256="0" * 64),
        ManifestFile(path="warmup/data", size=1 << 40, sha256="0" * 64),
    ])  # fmt: skip


def fits(config: str, size: int = 0, peak: int = 1, footprint: int | None = None, **pool: Any) -> list[str]:
    found = check_fits(on(footprint=footprint, **pool), config, manifest(size), peak)
    return [f"{each.severity}: {each.what}" for each in found]


def on(*backends: str, footprint: int | None = None, others: tuple[ModelFacts, ...] = (), **pool: Any) -> Target:
    """Return the model's target: a pool of these facts on a server with these backends, and other models."""
    made = plane("east", dataset("a"), footprint_bytes=footprint)
    facts = PoolFacts.model_validate({"name": "main", "loading": "preload", "gpu": False} | pool)
    server = made.servers[0].model_copy(update={"pools": (facts,), "backends": backends})
    of, _ = known(made.model_copy(update={"servers": (server,), "models": (*made.models, *others)}))
    return targets(of, MODEL)[0]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    (tmp_path / "models").mkdir()
    return open_repository(tmp_path / "models")


@pytest.mark.parametrize("config", ['platform: "tensorrt_plan"', 'backend: "tensorrtllm"', 'backend: "dali"'])
def test_a_model_for_gpus_is_refused_on_servers_without_one(config: str) -> None:
    (message,) = fits(config)
    assert message.startswith("error: ")
    assert "east/preload/main has none" in message
    assert fits(config, gpu=True) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 900 * MIB, "memory_bytes": 1024 * MIB},
         "error: it needs 1,125 MiB (estimated from its files), but the pool east/preload/main has 1,024 MiB"),
        ({"size": 800 * MIB, "memory_bytes": 1024 * MIB}, ""),
        ({"footprint": 11, "capacity_bytes": 10, "memory_bytes": 99},
         "error: it needs 0 MiB (declared), but the pool east/preload/main has 0 MiB"),
        ({"size": 1 << 50}, ""),
        ({"footprint": 300 * MIB, "memory_bytes": 1000 * MIB, "peak": 4},
         "warning: during the deployment 4 versions are in memory, which can need 1,200 MiB (declared for each), "
         "but the pool east/preload/main has 1,000 MiB"),
        ({"footprint": 300 * MIB, "memory_bytes": 1000 * MIB, "peak": 3}, ""),
    ],
    ids=["large", "fits", "declared", "unknown", "beside", "beside-fits"],
)  # fmt: skip
def test_a_model_must_fit_its_slice_and_should_fit_twice(given: dict[str, Any], message: str) -> None:
    assert fits("", **given) == ([message] if message else [])


@pytest.mark.parametrize(
    ("config", "size", "footprint", "is_known"),
    [
        ('backend: "python"', 1, None, False),
        ('backend: "vllm"', 1, None, False),
        ('backend: "python"', 100 * MIB, None, True),
        ('backend: "python"', 1, MIB, True),
        ('backend: "onnxruntime"', 1, None, True),
        ('platform: "tensorrt_plan"', 1, None, True),
    ],
)
def test_code_without_weights_gets_an_advisory_unless_its_footprint_is_declared(
    config: str, size: int, footprint: int | None, is_known: bool
) -> None:
    pool = on(footprint=footprint, gpu=True, capacity_bytes=999 * MIB, loading="on-demand")
    files = make_manifest(MODEL, [ManifestFile(path="1/model", size=size, sha256="0" * 64)])
    assert [each.severity for each in check_fits(pool, config, files, 1)] == ([] if is_known else ["advisory"])


def test_versions_with_different_tensors_cannot_be_served_together() -> None:
    one, other = CONFIG.format(name=MODEL, batch=4), CONFIG.format(name=MODEL, batch=8)
    (found,) = errors(TritonKind().check_beside(one, other, 1, 2))
    assert "versions 1 and 2 cannot be served at the same time: max_batch_size: 4 → 8" in found.what
    assert TritonKind().check_beside(one, one + "dynamic_batching { max_queue_delay_microseconds: 5 }", 1, 2) == []


def test_different_parameters_are_only_a_warning() -> None:
    one = CONFIG.format(name=MODEL, batch=4)
    findings = TritonKind().check_beside(one, one + 'parameters { key: "x" value { string_value: "1" } }', 1, 2)
    assert errors(findings) == []
    assert refuse(findings, "", "")[0].startswith("config.pbtxt: version 1 runs under version 2's parameters")


def test_a_backend_that_the_server_lacks_is_refused(tmp_path: Path, repository: Repository) -> None:
    entry = write_entry(tmp_path / "staged", 3)
    config = entry / "config.pbtxt"

    def message(target: Target) -> list[str]:
        return [each.what for each in errors(check_staged(entry, target, repository))]

    config.write_text(CONFIG.format(name=MODEL, batch=4))
    assert message(on("onnxruntime", "tensorrt")) == ["the server has no backend 'python'"]
    assert message(on("python")) == message(on()) == []
    config.write_text(CONFIG.format(name=MODEL, batch=4).replace("KIND_CPU", "KIND_GPU"))
    assert message(on()) == ["KIND_GPU, but the server has no GPU"]
    assert message(on(gpu=True)) == []


def write_ensemble(folder: Path) -> Path:
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(
        f"""name: "{MODEL}"
platform: "ensemble"
input {{ name: "X" data_type: TYPE_FP32 dims: [ 2 ] }}
output {{ name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }}
ensemble_scheduling {{ step {{
  model_name: "scorer" model_version: -1
  input_map {{ key: "INPUT" value: "X" }} output_map {{ key: "OUTPUT" value: "Y" }}
}} }}
"""
    )
    return folder


@pytest.mark.parametrize(
    ("source", "command"), [(None, "tidegate deploy scorer --to prod"), ("dev", "tidegate promote scorer --to prod")]
)
def test_an_ensembles_error_names_the_steps_to_deploy_first_and_how(
    tmp_path: Path, repository: Repository, source: str | None, command: str
) -> None:
    ensemble = write_ensemble(tmp_path / "staged")
    if source is not None:  # its files are there, but it was undeployed
        scorer = write_entry(Path(repository.where) / "scorer", 3) / "config.pbtxt"
        text = config.published_config(scorer.read_text(), model="scorer", owner=1, served=[1], aliases={})
        scorer.write_text(config.withdrawn_config(text))
    (home,) = on().homes
    of = home.environment.model_copy(update={"promotion": Promotion(source=source)})
    findings = check_staged(ensemble, replace(on(), homes=(replace(home, environment=of),)), repository)
    with pytest.raises(UsageError) as caught:
        refuse(findings, "it cannot be served", "there")
    assert caught.value.do == command


def test_a_step_with_a_broken_configuration_is_reported_with_file_and_line(
    tmp_path: Path, repository: Repository
) -> None:
    scorer = write_entry(Path(repository.where) / "scorer", 3) / "config.pbtxt"
    scorer.write_text("\n" + scorer.read_text().replace("max_batch", "max_bach"))
    with pytest.raises(UsageError, match=r"max_bach_size") as caught:
        check_staged(write_ensemble(tmp_path / "staged"), on(), repository)
    assert re.fullmatch(rf"{re.escape(str(scorer))}:[0-9]+", str(caught.value.where))


def test_a_preload_pool_has_memory_for_all_its_models() -> None:
    churn = ModelFacts(name="churn", server="preload", pool="main", footprint_bytes=800 * MIB)
    both: dict[str, Any] = {"footprint": 300 * MIB, "memory_bytes": 1000 * MIB, "others": (churn,)}
    (message,) = check_fits(on(**both), "", manifest(0), 1)
    assert message.severity == "warning"
    assert "in addition to the 800 MiB declared for the pool's other models" in message.what
    assert check_fits(on(**both, loading="on-demand"), "", manifest(0), 1) == []


@pytest.mark.parametrize(
    ("model", "facts", "message"),
    [
        (MODEL, {"gpus": 2}, ""),
        (MODEL, {"gpus": 1}, "prod/preload: gpus: [1]"),
        ("another", {"gpus": 1}, ""),  # in no environment, so any server may serve it
    ],
)
def test_an_entry_is_held_against_the_environments_before_it_is_registered(
    model: str, facts: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = write_entry(tmp_path / model, 1)
    with (entry / "config.pbtxt").open("a") as config:
        config.write("instance_group { kind: KIND_GPU gpus: 1 }\n")
    assert against_environments(entry, model) == []
    made = plane("east", dataset("a"))
    pool = PoolFacts.model_validate({"name": "main", "loading": "preload", "gpu": True} | facts)
    server = made.servers[0].model_copy(update={"pools": (pool,), "backends": ("python",), "release": "26.08"})
    _, everywhere = known(made.model_copy(update={"servers": (server,)}))
    (tmp_path / "environments.json").write_text(everywhere.model_dump_json(by_alias=True, exclude_none=True))
    monkeypatch.setenv("TIDEGATE_ENVIRONMENTS", str(tmp_path / "environments.json"))
    found = [each.what for each in against_environments(entry, model)]
    assert [each[: len(message)] for each in found] == ([message] if message else [])


def test_the_advisory_ends_once_every_environment_declares_the_footprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry := tmp_path / MODEL / "1").mkdir(parents=True)
    (entry / "model.py").touch()
    (found,) = memory_unknown(tmp_path / MODEL)
    assert (found.severity, "backend python" in found.what) == ("advisory", True)
    for footprint, expected in ((None, [found]), (MIB, [])):
        made = plane("east", dataset("a"), footprint_bytes=footprint)
        _, everywhere = known(made)
        (tmp_path / "environments.json").write_text(everywhere.model_dump_json(by_alias=True, exclude_none=True))
        monkeypatch.setenv("TIDEGATE_ENVIRONMENTS", str(tmp_path / "environments.json"))
        assert memory_unknown(tmp_path / MODEL) == expected


def test_an_entry_that_no_server_has_the_backend_for_is_reported_before_it_is_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "iris" / "1").mkdir(parents=True)
    (tmp_path / "iris" / "1" / "model.onnx").touch()
    (tmp_path / "iris" / "config.pbtxt").write_text('platform: "onnxruntime_onnx"\n')
    made = plane("east", dataset("a"))
    server = made.servers[0].model_copy(update={"backends": ("python",)})
    _, everywhere = known(made.model_copy(update={"servers": (server,)}))
    (tmp_path / "environments.json").write_text(everywhere.model_dump_json(by_alias=True, exclude_none=True))
    monkeypatch.setenv("TIDEGATE_ENVIRONMENTS", str(tmp_path / "environments.json"))
    (found,) = against_environments(tmp_path / "iris", "iris")
    assert found.severity == "warning"
    assert "no backend 'onnxruntime'" in found.what
