import errno
import os
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import pytest
from tidegate.errors import BusyError, NotFoundError, RefusedError, UnfinishedError, UnreachableError, UsageError
from tidegate.life.deploy import rollback
from tidegate.life.publish import publish_version
from tidegate.life.rules import current, history
from tidegate.life.target import Placement, targets
from tidegate.life.undeploy import undeploy
from tidegate.publishing import Repository
from tidegate_contracts.environments import Environments, Promotion
from tidegate_contracts.whereabouts import Place, PlaceState, Whereabouts

from .papers import Answers, Life
from .test_life_target import MODEL, dataset, known, plane

STAYING = Place(replica="10.0.0.1:8000", state="resident")


def home(life: Life) -> Placement:
    [target] = targets(life.of, MODEL)
    return target.homes[0]


def test_an_undeployed_model_is_not_served_and_the_registry_has_a_record(life: Life) -> None:
    life.bring(1)
    outcome = undeploy(life.here, MODEL, "prod")
    assert (outcome.what, outcome.version, outcome.who) == ("undeploy", 1, "anna")
    assert (life.served(), life.papers.aliases) == ((), {})
    assert current(life.papers.written, "prod") is None
    assert [each.what for each in life.papers.written] == ["deploy", "undeploy"]
    repository = life.here.repository(home(life))
    assert repository.models() == []
    assert not (life.models / MODEL).exists()  # otherwise a Triton that has loaded it would still serve it


def test_a_directory_of_two_data_planes_is_removed_when_neither_loads_from_it(life: Life) -> None:
    class Loading(Answers):
        def whereabouts(self, model: str, **how: Any) -> Whereabouts:
            assert (self.repository / model).exists() or not self.places
            message = super().whereabouts(model, **how)
            self.places = () if next(answers) else self.places
            return message

    answers = chain([False, False], repeat(True))
    _, both = known(plane("east", dataset("a")), plane("west", dataset("a")))
    west = Loading(life.models)
    proxies: Any = {"http://east": life.answers, "http://west": west}
    here = replace(life.here, known=both, _proxies=proxies)
    publish_version(here, "deploy", life.papers.register(1), both.environments[0], "anna")
    west.places = (STAYING.model_copy(update={"state": "loading"}),)
    assert undeploy(here, MODEL, "prod").planes == ("east", "west")
    assert not (life.models / MODEL).exists()


def test_a_version_that_was_never_deployed_cannot_be_undeployed(life: Life) -> None:
    life.papers.register(1)
    with pytest.raises(NotFoundError, match="prod has no version"):
        undeploy(life.here, MODEL, "prod")
    life.bring(1)
    undeploy(life.here, MODEL, "prod")
    with pytest.raises(NotFoundError, match="prod has no version"):
        undeploy(life.here, MODEL, "prod")


def test_a_rollback_restores_an_undeployed_version(life: Life) -> None:
    for number in (1, 2):
        life.bring(number)
    undeploy(life.here, MODEL, "prod")
    assert rollback(life.here, MODEL, "prod").version == 2
    undeploy(life.here, MODEL, "prod")
    assert rollback(life.here, MODEL, "prod", 1).version == 1
    assert life.served() == (1,)


@pytest.mark.parametrize("state", ["resident", "draining", "loading"])
def test_nothing_changes_if_a_replica_does_not_unload(life: Life, state: PlaceState) -> None:
    life.bring(1)
    before = (life.models / MODEL / "config.pbtxt").read_text()
    life.answers.places = (Place(replica="10.0.0.1:8000", state=state),)
    with pytest.raises(UnfinishedError, match="servers that had unloaded it load it again") as caught:
        undeploy(life.here, MODEL, "prod")
    assert f"it is still served after 6 s\n  why: 10.0.0.1:8000 ({state})" in caught.value.why
    assert (life.models / MODEL / "config.pbtxt").read_text() == before
    assert life.papers.aliases == {"prod": 1}
    assert [each.what for each in life.papers.written] == ["deploy"]
    [failed] = [each for each in history(life.here, MODEL) if each.ended != "done"]
    assert (failed.what, failed.ended) == ("undeploy", "failed")
    assert "10.0.0.1:8000" in failed.note


@pytest.mark.parametrize("state", ["unknown", "failed"])
def test_a_ready_replica_counts_more_than_its_reported_state(life: Life, state: str) -> None:
    life.bring(1)
    life.answers.places = (STAYING.model_copy(update={"state": state}),)
    life.answers.is_ready = True
    with pytest.raises(UnfinishedError, match="preload/main is ready for calls"):
        undeploy(life.here, MODEL, "prod")
    assert life.served() == (1,)
    life.answers.is_ready = False
    assert undeploy(life.here, MODEL, "prod").changed


@pytest.mark.parametrize("places", [(), (STAYING.model_copy(update={"state": "unreachable"}),)])
def test_a_pool_of_which_no_replica_gets_calls_is_not_waited_for(life: Life, places: tuple[Place, ...]) -> None:
    life.bring(1)
    life.answers.places = places
    life.answers.broken = {1: repeat(BusyError("no replica is ready"))}
    assert undeploy(life.here, MODEL, "prod").changed
    assert (life.models / MODEL).exists() == bool(places)  # an unreachable replica may be loading it


def test_a_failed_query_is_retried_and_a_proxy_that_always_fails_is_not_trusted(life: Life) -> None:
    life.bring(1)
    life.answers.places = (STAYING.model_copy(update={"state": "unknown"}),)
    life.answers.silent = iter([None, UnreachableError("it is rolled out"), None, NotFoundError("no such path")])
    life.answers.broken = {1: iter([BusyError("too many calls")])}
    assert undeploy(life.here, MODEL, "prod").changed
    rollback(life.here, MODEL, "prod")
    life.answers.broken = {1: repeat(BusyError("too many calls"))}
    with pytest.raises(UnfinishedError, match=r"(?s)could not confirm.*too many calls"):
        undeploy(life.here, MODEL, "prod")
    assert life.served() == (1,)


def test_a_proxy_that_stops_answering_leaves_open_whether_the_model_is_served(life: Life) -> None:
    life.bring(1)
    life.answers.silent = chain([None], repeat(UnreachableError("no answer", why="connection refused")))
    with pytest.raises(UnfinishedError, match="was not removed") as caught:
        undeploy(life.here, MODEL, "prod")
    assert (
        "the proxy could not confirm that no server serves it after 6 s\n  why: connection refused" in caught.value.why
    )


def test_if_it_is_unknown_whether_it_is_served_nothing_is_done(life: Life) -> None:
    life.bring(1)
    life.answers.places = (Place(replica="10.0.0.1:8000", state="unseen"),)
    with pytest.raises(UnreachableError, match="nothing was changed"):
        undeploy(life.here, MODEL, "prod")
    assert (life.served(), life.papers.aliases) == ((1,), {"prod": 1})
    assert [each.what for each in history(life.here, MODEL)] == ["deploy"]


def test_a_configuration_that_could_not_be_restored_is_reported(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    life.bring(1)
    life.answers.places = (STAYING,)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Repository, "write_config", full)
    with pytest.raises(UnfinishedError) as caught:
        undeploy(life.here, MODEL, "prod")
    assert caught.value.what == f"{MODEL} was not removed from prod"
    assert "its configuration could not be restored: " in caught.value.why
    assert "No space left on device" in caught.value.why


def test_after_an_interrupt_the_restored_configuration_is_reported(life: Life) -> None:
    life.bring(1)
    life.answers.places = (STAYING,)
    life.answers.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        undeploy(life.here, MODEL, "prod")
    assert (life.served(), life.papers.aliases) == ((1,), {"prod": 1})
    back = "its configuration is restored, and servers that had unloaded it load it again"
    assert life.messages[-1] == f"{MODEL} was not removed from prod: {back}"
    assert [each.ended for each in history(life.here, MODEL)] == ["interrupted", "done"]


@pytest.mark.parametrize("after", ["the configuration", "the alias"])
def test_a_run_that_was_killed_is_ended_by_the_next_one(life: Life, after: str) -> None:
    life.bring(1)
    repository = life.here.repository(home(life))
    with repository.lock(MODEL, "anna"):
        repository.withdraw(MODEL)  # after a kill nothing is restored
    if after == "the alias":
        life.papers.aliases.clear()
    life.answers.places = (STAYING,)
    with pytest.raises(UnfinishedError, match=f"{MODEL} is not yet removed from prod"):
        undeploy(life.here, MODEL, "prod")
    life.answers.places = ()
    assert undeploy(life.here, MODEL, "prod").version == 1
    assert (current(life.papers.written, "prod"), life.papers.aliases) == (None, {})
    assert [each.what for each in life.papers.written] == ["deploy", "undeploy"]


def test_a_user_who_may_not_deploy_may_not_undeploy(life: Life) -> None:
    life.bring(1)
    of = life.of.model_copy(update={"promotion": Promotion(principals=("otto",))})
    here = replace(life.here, known=Environments(environments=(of,)))
    with pytest.raises(RefusedError, match="anna may not change versions in prod"):
        undeploy(here, MODEL, "prod")
    assert life.served() == (1,)
    assert [each.ended for each in history(life.here, MODEL)] == ["done"]


def test_a_model_that_tidegate_did_not_publish_is_not_touched(life: Life) -> None:
    life.bring(1)
    config = life.models / MODEL / "config.pbtxt"
    config.write_text(f'name: "{MODEL}"\n')
    with pytest.raises(UsageError, match="tidegate did not publish"):
        undeploy(life.here, MODEL, "prod")
    assert config.read_text() == f'name: "{MODEL}"\n'
