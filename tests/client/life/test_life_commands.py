import json
from typing import Any

import pytest
from tidegate import Tidegate
from tidegate.cli.app import app
from tidegate.errors import ExitCode
from typer.testing import CliRunner

from .papers import Life
from .test_life_target import MODEL, dataset, known, plane


class Commands:
    def __init__(self, life: Life) -> None:
        self.life = life
        life.papers.register(1)

    def run(self, *words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
        assert done.exit_code == code, done.output
        self.err = done.stderr
        return done.stdout

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code))


@pytest.fixture
def commands(life: Life, monkeypatch: pytest.MonkeyPatch) -> Commands:
    lab = known(plane("west", dataset("a", "other")))[1].environments[0].model_copy(update={"name": "dev"})
    everywhere = life.here.known.environments
    life.here.known = life.here.known.model_copy(update={"environments": (*everywhere, lab)})
    monkeypatch.setattr(Tidegate, "_context", life.here)
    return Commands(life)


def test_commands_print_their_steps(commands: Commands) -> None:
    assert commands.run("deploy", f"{MODEL}@1", "--to", "prod") == f"prod has version 1 of {MODEL}\n"
    assert "note: it was registered without a golden request" in commands.err
    assert commands.json("deploy", f"{MODEL}@1", "--to", "prod")["changed"] is False
    commands.life.papers.register(2)
    message = commands.run("promote", f"{MODEL}@2", "--to", "prod")
    assert message == f"prod has version 2 of {MODEL} (before: version 1)\n"
    assert commands.life.papers.tags["tidegate.prod.by"] == "anna"
    rolled = commands.json("rollback", MODEL, "--in", "prod")
    assert (rolled["what"], rolled["version"], rolled["previous"]) == ("rollback", 1, 2)
    caught = commands.json("history", MODEL, "--in", "prod")
    assert [(each["what"], each["version"]) for each in caught] == [("rollback", 1), ("promote", 2), ("deploy", 1)]
    assert "promote" in commands.run("history", MODEL)


def test_undeploy_needs_confirmation_and_prints_the_removed_versions(commands: Commands) -> None:
    commands.run("deploy", f"{MODEL}@1", "--to", "prod")
    assert commands.run("undeploy", MODEL, "--from", "prod", code=ExitCode.USAGE) == ""
    taken = f"prod has no version of {MODEL} any more (before: version 1)\n"
    assert commands.run("undeploy", MODEL, "--from", "prod", "--yes") == taken


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("rollback", MODEL, "--in", "prod"), ExitCode.NOT_FOUND, "never had a version"),
        (("deploy", MODEL, "--to", "prd"), ExitCode.NOT_FOUND, "did you mean prod"),
        (("deploy", f"{MODEL}@"), ExitCode.USAGE, "is not a model"),
        (("deploy", MODEL), ExitCode.USAGE, "you must name the environment"),
        (("history", MODEL), ExitCode.NOT_FOUND, "there are no records"),
    ],
)
def test_a_mistake_is_one_message(commands: Commands, words: tuple[str, ...], code: ExitCode, message: str) -> None:
    assert commands.run(*words, code=code) == ""
    assert message in commands.err


def test_exit_codes_show_the_result(commands: Commands) -> None:
    for number in (1, 2, 3):
        commands.life.bring(number)
    assert commands.json("verify", "prod", MODEL)["found"] == []
    assert "prod: 3 versions, " in commands.run("verify", "prod")
    assert "1 unserved version" in commands.run("prune", "prod", MODEL)
    commands.life.here.loaded_seconds = 0.0
    assert "removed 1 version" in commands.run("prune", "prod", "--yes")
    assert commands.json("prune", "prod", "--yes") == {"unserved": [], "removed": []}
    (commands.life.models / MODEL / "odd").write_text("")
    assert "1 finding" in commands.run("verify", "prod", code=ExitCode.FOUND)
    (commands.life.models / MODEL / "3" / "factor").write_text("4 ")
    assert "3/factor" in commands.run("verify", "prod", code=ExitCode.INTEGRITY)
