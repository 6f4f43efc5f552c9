"""What a life's steps leave to the next run, and what verifying finds where others have been at the repository."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tidegate.errors import RefusedError, UnfinishedError
from tidegate.life import publish
from tidegate.life.context import Context
from tidegate.life.deploy import Wanted, promote
from tidegate.life.publish import bring
from tidegate.life.verify import verify
from tidegate.registry import Record
from tidegate_contracts.environments import Environment, Environments, Promotion

from .entries import golden
from .papers import Answers, Papers, context
from .test_life_target import MODEL, dataset, known, plane


@pytest.fixture
def of() -> Environment:
    return known(plane("east", dataset("a")))[0]


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    (tmp_path / "dataset" / "models").mkdir(parents=True)
    (tmp_path / "shelf").mkdir()
    return Papers(tmp_path / "shelf", MODEL)


@pytest.fixture
def answers(papers: Papers) -> Answers:
    return Answers(papers.folder.parent / "dataset" / "models")


@pytest.fixture
def here(papers: Papers, answers: Answers) -> Context:
    return context(known(plane("east", dataset("a")))[1], papers, answers, answers.repository.parent)


def test_who_was_killed_before_the_golden_request_sends_it_in_the_next_run(
    here: Context, papers: Papers, answers: Answers, of: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = papers.register(1)
    papers.request = golden(7)  # which nothing here answers
    answers.killed = True
    with monkeypatch.context() as patch:
        patch.setattr(publish, "put_back", lambda *_: None)  # who is killed puts nothing back
        with pytest.raises(SystemExit):
            bring(here, "deploy", version, of, "anna")
    answers.killed = False
    with pytest.raises(UnfinishedError, match="golden request"):
        bring(here, "deploy", version, of, "anna")
    assert (answers.asked, papers.written, papers.aliases) == ([1], [], {})
    papers.request = golden(0)
    assert bring(here, "deploy", version, of, "anna").changed
    assert bring(here, "deploy", version, of, "anna").changed is False
    assert answers.asked == [1, 1]
    assert [each.version for each in papers.written] == [1]


def test_a_data_plane_that_tells_no_failures_is_no_proof_that_there_were_none(
    papers: Papers, answers: Answers, tmp_path: Path
) -> None:
    dev = known(plane("east", dataset("a")), plane("west", dataset("b")))[0].model_copy(update={"name": "dev"})
    asked = Promotion(source="dev", soak_hours=1)
    prod = Environment(name="prod", promotion=asked, planes=(plane("north", dataset("c")),))
    here = context(Environments(environments=(dev, prod)), papers, answers, tmp_path)
    papers.register(1)
    papers.written = [
        Record(what="deploy", model=MODEL, version=1, who="anna", when=datetime.now(UTC) - timedelta(hours=2),
               environment="dev", plane=each.name) for each in dev.planes
    ]  # fmt: skip
    answers.failures = iter([0, None])
    with pytest.raises(RefusedError, match="cannot be learned whether calls of version 1 failed"):
        promote(here, Wanted(MODEL, "1"), "prod")


def _notebooks_leftover(models: Path) -> None:
    (models / ".ipynb_checkpoints").mkdir()


def _linked_model(models: Path) -> None:
    (models / MODEL).rename(models.parent / "elsewhere")
    (models / MODEL).symlink_to(models.parent / "elsewhere")


def _link(models: Path) -> None:
    (models / MODEL / "1" / "link").symlink_to("/etc/passwd")


def _unreadable(models: Path) -> None:
    (models / MODEL / "config.pbtxt").write_text("nonsense {")


def _pipe(models: Path) -> None:
    (models / MODEL / "config.pbtxt").unlink()
    os.mkfifo(models / MODEL / "config.pbtxt")


@pytest.mark.parametrize(
    ("spoil", "kind", "said"),
    [
        (_notebooks_leftover, "stray", "'.ipynb_checkpoints' cannot be a model's name"),
        (_linked_model, "content", f"the folder of model {MODEL} is a link"),
        (_link, "content", "1/link is a link or a special file"),
        (_unreadable, "config", "config.pbtxt cannot be read"),
        (_pipe, "content", "config.pbtxt is a link or a special file"),
    ],
)
def test_what_cannot_be_looked_at_is_found_and_hides_nothing_else(
    here: Context,
    papers: Papers,
    answers: Answers,
    of: Environment,
    spoil: Callable[[Path], None],
    kind: str,
    said: str,
) -> None:
    bring(here, "deploy", papers.register(1), of, "anna")
    (answers.repository / "zebra").mkdir()
    assert {each.model for each in verify(here, "prod").found} == {"zebra"}
    spoil(answers.repository)
    found = verify(here, "prod").found
    assert any(each.kind == kind and said in each.what for each in found), found
    assert "zebra" in {each.model for each in found}
