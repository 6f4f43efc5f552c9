"""Another kind of server in the client: an entry in `KINDS` is all it takes."""

import json
from pathlib import Path
from typing import cast

import pytest
from tidegate.cli.model import check, show
from tidegate.errors import ExitCode, UsageError
from tidegate.kinds import KINDS
from tidegate.life.audit import verify
from tidegate.life.context import Context
from tidegate.life.deploy import rollback
from tidegate.life.publish import bring
from tidegate.life.target import homes
from tidegate.registry import Registry
from tidegate_contracts.environments import (
    Environment,
    Environments,
    ModelFacts,
    ObjectStoreLocation,
    Plane,
    PoolFacts,
    ServerFacts,
)
from typer import Typer
from typer.testing import CliRunner, Result

from tests.client.life.papers import Answers, Papers
from tests.client.life.papers import context as papers_context
from tests.client.life.test_life_target import MODEL, dataset, known, plane

from .toy.client import FILE, ToyConfigs, ToyKind

app = Typer(pretty_exceptions_enable=False)
app.command()(check)
app.command()(show)


@pytest.fixture(autouse=True)
def kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "toy", ToyKind())


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, said in (("whole", '{"tensors": ["IN", "OUT"]}'), ("broken", "{}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE).write_text(said)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_its_entries_are_recognised_checked_and_shown(repository: Path) -> None:
    done = run("check", str(repository))
    assert done.exit_code == ExitCode.FOUND
    assert done.stdout.splitlines() == [
        f"{repository}/broken/{FILE}:1: error: there are no tensors",
        f"{repository}/broken: 1 error",
        f"{repository}/whole: nothing found",
    ]
    assert "wants the backend toy" in run("check", str(repository / "whole"), "--backend", "python").stdout
    assert run("show", str(repository / "whole")).stdout == "tensors: IN, OUT\n"
    assert json.loads(run("show", str(repository / "whole"), "--json").stdout) == {"tensors": ["IN", "OUT"]}


def test_what_is_no_entry_of_any_kind_is_still_triton_to_say(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "notes.txt").touch()
    assert "there is no version" in run("check", str(tmp_path / "none")).stdout


def dev(kind: str) -> Environment:
    pool = PoolFacts(name="main", loading="preload", gpu=False)
    server = ServerFacts(name="s", kind=kind, location=ObjectStoreLocation(url="s3://b/p"), pools=(pool,))
    model = ModelFacts(name="m", server="s", pool="main")
    here = Plane(name="here", proxy_url="http://proxy", servers=(server,), models=(model,))
    return Environment(name="dev", planes=(here,))


def test_versions_are_published_to_the_repository_of_the_servers_kind() -> None:
    context = Context(Environments(environments=(dev("toy"),)), cast("Registry", None))
    (home,) = homes(dev("toy"), "m")
    assert isinstance(context.repository(home).configs, ToyConfigs)
    assert context.repository(home).where == "s3://b/p"
    with pytest.raises(UsageError, match=r"the server s is a vllm, .*\n.*triton, openai, toy"):
        context.repository(homes(dev("vllm"), "m")[0])


class ToyAnswers(Answers):
    """A proxy before servers that serve what the repository says."""

    def _served(self, model: str) -> tuple[int, ...]:
        repository = ToyKind().open_repository(self.repository)
        return repository.configs.read_published(repository.config(model) or "").served


def test_a_version_is_deployed_rolled_back_and_verified_as_its_kind_does_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_entry(folder: Path, number: int) -> None:
        folder.mkdir(parents=True)
        (folder / FILE).write_text(json.dumps({"tensors": [f"OF{number}"]}))

    monkeypatch.setattr("tests.client.life.papers.write_entry", write_entry)
    for folder in ("dataset/models", "shelf"):
        (tmp_path / folder).mkdir(parents=True)
    here = plane("east", dataset("a"))
    servers = (here.servers[0].model_copy(update={"kind": "toy"}),)
    of, known_here = known(here.model_copy(update={"servers": servers}))
    papers = Papers(tmp_path / "shelf", MODEL)
    context = papers_context(known_here, papers, ToyAnswers(tmp_path / "dataset/models"), tmp_path / "dataset")
    one, two = papers.register(1), papers.register(2)
    assert bring(context, "deploy", one, of, "anna").version == 1
    assert bring(context, "deploy", two, of, "anna").previous == 1
    repository = ToyKind().open_repository(tmp_path / "dataset/models")
    assert repository.configs.read_published(repository.config(MODEL) or "").served == (2,)
    assert rollback(context, MODEL, "prod").version == 1
    assert verify(context, "prod").found == ()
    file = tmp_path / "dataset/models" / MODEL / "1/.entry" / FILE
    file.chmod(0o644)
    file.write_text("{}")
    assert [each.kind for each in verify(context, "prod").found] == ["content"]
