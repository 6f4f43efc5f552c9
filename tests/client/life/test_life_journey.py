import time
from pathlib import Path

import pytest
from tidegate import environments
from tidegate.errors import RefusedError, TidegateError, UnfinishedError, UsageError
from tidegate.life.deploy import deploy, promote, rollback
from tidegate.life.rules import history
from tidegate.life.undeploy import undeploy
from tidegate_contracts.environments import Environments, Promotion

from .calling import Caller
from .conftest import VISITOR, World
from .entries import PROGRAM, REQUEST

pytestmark = pytest.mark.thorough


def test_a_failed_deployment_leaves_the_old_version_serving_and_the_next_run_continues(
    world: World, tmp_path: Path
) -> None:
    context = world.context()
    one = world.register("faulty", 3, tmp_path)
    deploy(context, "faulty", "dev")
    repository = world.dev.repository("preload") / "faulty" / "config.pbtxt"
    before = repository.read_text()
    with Caller(world.client(world.dev), "faulty") as caller:
        broken = world.register("faulty", 5, tmp_path, program=PROGRAM.replace("self.factor =", "raise OSError #"))
        context.wait_seconds = 600
        begun = time.monotonic()
        with pytest.raises(UnfinishedError, match="the served versions are unchanged") as failed:
            deploy(context, "faulty", "dev")
        assert "it cannot be loaded" in str(failed.value)
        assert "OSError" in str(failed.value)
        assert time.monotonic() - begun < 60  # errors that Triton reports immediately end the wait
        assert repository.read_text() == before
        context.wait_seconds = 60
        lies = world.register("faulty", 7, tmp_path, expected=8)
        with pytest.raises(UnfinishedError, match=r"7\.0 instead of 8\.0") as caught:
            deploy(context, f"faulty@{lies}", "dev")
        assert str(caught.value).count("do: ") == 1
        assert repository.read_text() == before
        narrow = world.register("faulty", 9, tmp_path, batch=0)
        with pytest.raises(UsageError, match="max_batch_size"):
            deploy(context, f"faulty@{narrow}", "dev")
        assert repository.read_text() == before
        sound = world.register("faulty", 11, tmp_path)
        assert deploy(context, "faulty", "dev").previous == one
        caller.until(11)
        assert set(caller.of_next(5)) == {11}
    assert caller.failures == []
    assert set(caller.answers) == {3, 11}
    ends = [(each.version, each.ended) for each in history(context, "faulty", "dev")]
    assert ends == [(sound, "done"), (narrow, "failed"), (lies, "failed"), (broken, "failed"), (one, "done")]
    assert broken < lies < narrow < sound


def test_an_on_demand_model_drains_and_the_new_version_is_loaded_and_called(world: World, tmp_path: Path) -> None:
    context = world.context()
    one = world.register("ocr", 3, tmp_path)
    deploy(context, "ocr", "dev")
    with Caller(world.client(world.dev), "ocr") as caller:
        assert set(caller.of_next(3)) == {3}
        world.register("ocr", 5, tmp_path)
        deploy(context, "ocr", "dev")
        caller.until(5)
        assert set(caller.of_next(5)) == {5}
        assert rollback(context, "ocr", "dev").version == one
        caller.until(3)
        assert set(caller.of_next(5)) == {3}
    assert caller.failures == []


@pytest.mark.parametrize("name", ["faulty", "ocr"])
def test_an_undeployed_version_is_unloaded_and_a_rollback_restores_it(world: World, tmp_path: Path, name: str) -> None:
    context, client = world.context(), world.client(world.dev)
    world.register(name, 13, tmp_path)
    deploy(context, name, "dev")
    with Caller(client, name) as caller:
        caller.until(13)
    assert undeploy(context, name, "dev").changed

    def is_gone() -> bool:  # a proxy polls at most twice a second
        [model] = client.whereabouts(name).models
        return model.state in ("unknown", "cold")

    world.dev.preload.process.wait_until(is_gone, 30)
    with pytest.raises(TidegateError):
        client.infer_json(name, REQUEST)
    rollback(context, name, "dev")
    with Caller(client, name) as caller:
        caller.until(13)


def test_the_reason_of_a_failed_load_is_reported(world: World, tmp_path: Path) -> None:
    context = world.context(wait_seconds=600)
    context.poll_seconds = 1.0
    one = world.register("ocr", 7, tmp_path)
    deploy(context, f"ocr@{one}", "dev")
    broken = PROGRAM.replace("self.factor =", "raise OSError('no such device') #")
    world.register("ocr", 9, tmp_path, program=broken)
    with pytest.raises(UnfinishedError, match="the served versions are unchanged") as caught:
        deploy(context, "ocr", "dev")
    assert "it cannot be loaded" in caught.value.why  # before the timeout
    assert "OSError: no such device" in caught.value.why
    with Caller(world.client(world.dev), "ocr") as caller:
        caller.until(7)  # as soon as the policy has seen the restored configuration


def test_a_version_whose_calls_fail_in_dev_does_not_come_into_prod(world: World, tmp_path: Path) -> None:
    context = world.context()
    number = world.register("soaked", 3, tmp_path)
    deploy(context, "soaked", "dev")

    def asks(**more: object) -> None:
        promotion = Promotion.model_validate({"source": "dev", "principals": (VISITOR,)} | more)
        dev, prod = environments.load().environments
        known = Environments(environments=(dev, prod.model_copy(update={"promotion": promotion})))
        context.known = known

    asks(soak_hours=1)
    with pytest.raises(RefusedError, match=r"was served in dev for 0\.0 hours of the required 1"):
        promote(context, "soaked", "prod")
    client = world.client(world.dev)
    bad = {"inputs": [REQUEST["inputs"][0] | {"data": [-1.0, 2.0]}]}
    with pytest.raises(TidegateError):
        client.infer_json("soaked", bad)
    asks(soak_hours=1e-9)
    with pytest.raises(RefusedError, match=f"calls of version {number} failed in dev: 1"):
        promote(context, "soaked", "prod")
    asks(separation_of_duties=True)  # anna registered it
    assert promote(context, "soaked", "prod").version == number
