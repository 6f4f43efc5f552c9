from collections.abc import Iterator

import pytest
from tidegate.triton.publishing.config import closed_config

from lab.local_plane.process import CannotBeHadError

from .entries import Entry, changing, config, entry, publish
from .polling import SECONDS, Polling, polling


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Polling]:
    try:
        with polling(tmp_path_factory.mktemp("polling")) as running:
            yield running
    except CannotBeHadError as error:
        pytest.skip(f"NOT RUN: THERE IS NO TRITON HERE ({error}), so none loaded what a killed publisher left.")


def write_config(real: Polling, of: Entry, owner: int, served: list[int], **aliases: int) -> None:
    with changing(real.root, of.model) as repository:
        repository.write_config(of.model, config(of, owner, served, **aliases))


def without_labels(of: Entry) -> Entry:
    files = {path: content for path, content in of.files.items() if path.startswith("1/")}
    text = of.files["config.pbtxt"].replace(b'label_filename: "labels.txt"', b"")
    return Entry(files | {"config.pbtxt": text}, of.model)


def test_a_change_of_served_versions_reloads_none_of_the_others(real: Polling) -> None:
    one, two = without_labels(entry(1, "grows")), without_labels(entry(2, "grows"))
    publish(real.root, one, 1, prod=1)
    publish(real.root, two, 2, [1, 2], prod=1)
    write_config(real, one, 1, [1], prod=1)
    real.settle()
    with real.called("grows", 1) as (client,):
        write_config(real, one, 1, [1, 2], prod=1)
        real.settle()
        assert real.ask("grows", 2)[:2] == (2, 2)
        write_config(real, two, 2, [1, 2], prod=1)
        write_config(real, one, 1, [1], prod=1)
        real.settle()
    assert client.calm()
    real.server.process.wait_until(lambda: real.states("grows") == {1: "READY", 2: "UNAVAILABLE"}, SECONDS)


def test_moving_an_alias_reloads_every_served_version_and_refuses_no_call(real: Polling) -> None:
    one, two = entry(1, "moves"), entry(2, "moves")
    publish(real.root, one, 1, prod=1)
    publish(real.root, two, 2, [1, 2], prod=1)
    real.settle()
    with real.called("moves", 1, 2) as clients:
        write_config(real, two, 2, [1, 2], prod=2)
        real.settle()
    assert [client.refused for client in clients] == [[], []]
    assert [len(client.answers) for client in clients] == [2, 2]
    assert real.config("moves").parameters["tidegate.alias.prod"].string_value == "2"


@pytest.mark.thorough
def test_a_model_that_does_not_load_can_be_withdrawn_while_it_is_being_loaded(real: Polling) -> None:
    """Deleting it during the load stops Triton's polling for good, as an experiment showed."""
    bad = entry(1, "withdrawn", more='time.sleep(1)\n        raise RuntimeError("does not load")')
    publish(real.root, bad, 1, prod=1)
    real.server.process.wait_until(lambda: real.states("withdrawn").get(1) == "LOADING", SECONDS)
    with changing(real.root, "withdrawn") as repository:
        repository.withdraw("withdrawn")
    real.settle()
    assert real.states("withdrawn") == {1: "UNAVAILABLE"}
    since = len(real.log)
    real.settle()
    assert 'loading: withdrawn:1"' not in real.log[since:]
    publish(real.root, entry(2, "withdrawn"), 2)
    real.settle()
    assert real.ask("withdrawn")[:2] == (2, 2)


def test_a_withdrawn_model_is_unloaded_during_a_second_load_and_comes_back(real: Polling) -> None:
    """During a second load Triton does not show it: the first copy is ready all the while."""
    of = entry(1, "away")
    publish(real.root, of, 1, prod=1)
    real.settle()
    assert real.ask("away")[:2] == (1, 1)
    since = len(real.log)
    (real.root / "away" / "1" / "weights" / "data").touch()
    real.server.process.wait_until(lambda: 'loading: away:1"' in real.log[since:], SECONDS)
    with changing(real.root, "away") as repository:
        repository.withdraw("away")
        assert real.states("away") == {1: "READY"}
        real.server.process.wait_until(lambda: real.states("away") == {1: "UNAVAILABLE"}, SECONDS)
        repository.remove_model("away")
        real.settle()
    assert "failed" not in real.log[since:]
    publish(real.root, of, 1, prod=1)
    real.settle()
    assert real.ask("away")[:2] == (1, 1)


@pytest.mark.thorough
def test_a_closed_configuration_keeps_triton_from_incomplete_versions(real: Polling) -> None:
    """This is how a repository in an object store adds a model. This Triton reads only directories."""
    of = without_labels(entry(5, "closed"))
    text = config(of, 5, [5])
    since = len(real.log)
    folder = real.root / "closed"
    staged = real.staging / "closed"
    staged.mkdir()
    (staged / "config.pbtxt").write_text(closed_config(text))
    staged.rename(folder)
    real.settle()
    for path in sorted(of.manifest.files, key=lambda file: file.path):
        target = folder / (path.path.replace("1/", "5/", 1) if path.path.startswith("1/") else f"5/.entry/{path.path}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(of.files[path.path])
        if path.path == "1/model.py":
            real.settle()
    assert 'loading: closed:5"' not in real.log[since:]
    assert real.states("closed") == {}
    (real.staging / "config").write_text(text)
    (real.staging / "config").rename(folder / "config.pbtxt")
    real.settle()
    assert real.ask("closed")[:2] == (5, 5)
