from pathlib import Path

import pytest
from tidegate_contracts import environments as facts

from .test_cli_app import tidegate

NAMES = {"dev": ["fraud", "draft"], "prod": ["fraud", "churn"]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "environments.json"
    known = tuple(
        facts.Environment(name=name, planes=(facts.Plane(
            name="east", proxy_url="http://proxy", servers=(),
            models=tuple(facts.ModelFacts(name=model, server="gpu", pool="main") for model in models),
        ),))
        for name, models in NAMES.items()
    )  # fmt: skip
    file.write_text(facts.Environments(environments=known).model_dump_json(by_alias=True))
    return file


def completed(words: str, file: Path) -> list[str]:
    place = str(len(words.split(" ")) - 1)
    variables = {"TIDEGATE_ENVIRONMENTS": str(file)}
    message = tidegate(_TIDEGATE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=place, **variables)
    assert (message.returncode, message.stderr) == (0, ""), message.stderr
    return message.stdout.split()


@pytest.mark.parametrize(
    ("words", "names"),
    [("why ", ["churn", "draft", "fraud"]), ("why f", ["fraud"]), ("status --environment dev ", ["draft", "fraud"]),
     ("predict -e prod c", ["churn"]), ("promote fraud --to p", ["prod"]), ("prune ", ["dev", "prod"])],
)  # fmt: skip
def test_names_are_completed_from_the_file(file: Path, words: str, names: list[str]) -> None:
    assert completed(f"tidegate {words}", file) == names


def test_a_file_that_cannot_be_read_completes_nothing_and_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "environments.json").write_text("no JSON")
    assert completed("tidegate why ", tmp_path / "environments.json") == []
