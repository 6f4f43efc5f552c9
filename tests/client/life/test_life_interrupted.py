"""Who is interrupted anywhere leaves the old version serving, and the next run completes; somebody calls all along."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidegate.errors import IntegrityError, UnfinishedError
from tidegate.life.deploy import deploy
from tidegate.life.past import history
from tidegate.triton.publishing import read_published, steps

from .calling import Caller
from .entries import golden, write_entry
from .killing import killed, racing
from .worlds import BUCKET, World

pytestmark = pytest.mark.thorough

POINTS = (
    "before FolderRepository.staging",
    "before Registry.fetch",
    "after Registry.fetch",
    "before FolderRepository.publish",
    "after FolderRepository.publish",
    "before ProxyClient.ready#2",
    "after ProxyClient.infer_json",
    "before rename partial to config.pbtxt#2",
    "after rename partial to config.pbtxt#2",
    "after ProxyClient.config",
    "before Registry.set_alias",
    "after Registry.set_alias",
    "after Registry.tag",
    "before Registry.append_record",
    "after Registry.append_record",
)
CUT_OVER = POINTS.index("after rename partial to config.pbtxt#2")
FIRST = 2


def register(world: World, name: str, factor: int, folder: Path, padding: int = 0) -> int:
    entry = write_entry(folder / str(factor) / name, factor, padding=padding)
    return world.context().registry.register(entry, registered_by="anna", golden=golden(factor)).number


@pytest.fixture(scope="module")
def caller(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """Somebody who calls all the time while the module's tests run; nothing he asked may have been refused."""
    register(world, "killed", FIRST, tmp_path_factory.mktemp("first"))
    deploy(world.context(), "killed", "dev")
    with Caller(world.client(world.dev), "killed") as calling:
        calling.of_next(1)
        yield calling
    assert calling.failures == []


@pytest.mark.parametrize("point", POINTS)
def test_who_is_killed_leaves_what_served_and_the_next_run_completes(
    world: World, caller: Caller, tmp_path: Path, point: str
) -> None:
    factor = 10 + POINTS.index(point)
    number = register(world, "killed", factor, tmp_path)
    context = world.context()
    serving = context.registry.alias("killed", "dev")
    assert killed("killed", number, point), f"nothing came to {point}"
    if POINTS.index(point) < CUT_OVER:
        assert factor not in caller.of_next(20)
        assert context.registry.alias("killed", "dev") == serving
    outcome = deploy(context, f"killed@{number}", "dev")
    assert (outcome.version, outcome.previous) == (number, serving)
    assert outcome.changed == (point != "after Registry.append_record")
    assert context.registry.alias("killed", "dev") == number
    assert [each.version for each in history(context, "killed", "dev")].count(number) == 1
    published = read_published((world.dev.repository("preload") / "killed" / "config.pbtxt").read_text())
    assert (published.served, published.aliases) == ((serving, number), {"champion": number})
    assert caller.failures == []


def test_a_volume_that_fails_in_the_middle_is_told_and_the_configuration_is_put_back(
    world: World, caller: Caller, tmp_path: Path
) -> None:
    context = world.context()
    config = world.dev.repository("preload") / "killed" / "config.pbtxt"
    before = config.read_text()
    faults = ((errno.ENOSPC, "no room"), (errno.ESTALE, "does not answer"))
    number = register(world, "killed", 50, tmp_path)
    for when, (code, said) in [(when, fault) for when in ("before", "after") for fault in faults]:
        fails = iter([OSError(code, os.strerror(code))])

        def come(now: str, step: str, when: str = when, fails: Iterator[OSError] = fails) -> None:
            if (now, step) == (when, "rename partial to config.pbtxt") and (error := next(fails, None)):
                raise error

        steps.watch(come)
        try:
            with pytest.raises(UnfinishedError, match=said):
                deploy(context, f"killed@{number}", "dev")
        finally:
            steps.watch()
        assert config.read_text() == before
    assert deploy(context, f"killed@{number}", "dev").changed
    assert caller.failures == []


def test_of_two_who_deploy_at_once_one_wins_and_the_other_is_told(world: World, tmp_path: Path) -> None:
    context = world.context()
    register(world, "raced", 3, tmp_path)
    deploy(context, "raced", "dev")
    versions = [register(world, "raced", factor, tmp_path) for factor in (5, 7)]
    ended = racing("raced", versions)
    assert sorted(each.split(":")[0] for each in ended) == ["BusyError", "done"]
    winner, loser = (versions[ended.index(each)] for each in sorted(ended, key=lambda each: each != "done"))
    assert context.registry.alias("raced", "dev") == winner
    assert deploy(context, f"raced@{loser}", "dev").previous == winner


def test_an_artifact_that_was_tampered_with_comes_nowhere(world: World, caller: Caller, tmp_path: Path) -> None:
    context = world.context()
    config = world.dev.repository("preload") / "killed" / "config.pbtxt"
    before = config.read_text()
    number = register(world, "killed", 70, tmp_path)
    s3 = world.store.client()
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    keys = [item["Key"] for page in pages for item in page["Contents"] if item["Key"].endswith("/1/factor")]
    (marked,) = [key for key in keys if s3.get_object(Bucket=BUCKET, Key=key)["Body"].read().startswith(b"70 ")]
    s3.put_object(Bucket=BUCKET, Key=marked, Body=b"71 ")
    with pytest.raises(IntegrityError):
        deploy(context, f"killed@{number}", "dev")
    assert config.read_text() == before
    assert not (config.parent / str(number)).exists()
    assert 71 not in caller.of_next(5)
