"""The zoo is what the demo says of it, without any Triton."""

from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from lab.demo import platform, zoo
from lab.local_plane.repository import Model

MODELS = (*zoo.on_demand(), zoo.RESIDENT.model(), zoo.NEWCOMER.model((1, 2)), zoo.BROKEN.model((2,)))


def read(folder: Path) -> model_config_pb2.ModelConfig:
    return text_format.Parse((folder / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def test_at_least_twelve_models_need_four_times_the_room() -> None:
    assert len([size for size in zoo.SIZES.values() if size]) >= 12
    assert len(set(zoo.SIZES.values())) >= 9
    assert sum(zoo.SIZES.values()) == zoo.TIMES * zoo.CAPACITY_BYTES
    assert max(zoo.SIZES.values()) < zoo.CAPACITY_BYTES


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_model_is_told_to_load_its_newest_version_and_so_many_weights(tmp_path: Path, model: Model) -> None:
    model.write(tmp_path)
    config = read(tmp_path / model.name)
    assert config.name == model.name
    if model.program is None:
        return
    assert list(config.version_policy.specific.versions) == [max(model.versions)]
    weights = int(config.parameters["mebibytes"].string_value)
    sizes = zoo.SIZES | {each.name: each.bytes for each in (zoo.RESIDENT, zoo.NEWCOMER)}
    assert (weights + zoo.PROCESS_MIB) * zoo.MIB == sizes[model.name]
    assert all((tmp_path / model.name / str(version) / "model.py").is_file() for version in model.versions)


def test_whoever_waits_for_whale_is_told_so_at_once() -> None:
    """Its idle limit is longer than the bounded wait, and within what `Retry-After` says at most."""
    assert platform.TUNING.retry_most_seconds is not None
    assert platform.WAIT_SECONDS < zoo.IDLE_SECONDS["whale"] <= platform.TUNING.retry_most_seconds
    assert zoo.SIZES["whale"] + zoo.SIZES["orca"] > zoo.CAPACITY_BYTES
