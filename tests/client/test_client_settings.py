from pathlib import Path

import pytest
from tidegate.errors import UsageError
from tidegate.settings import settings


def test_nothing_is_guessed_where_nothing_is_said() -> None:
    said = settings({"TIDEGATE_ENVIRONMENTS": " ", "TIDEGATE_DATASETS": "", "DOMINO_API_PROXY": ""})
    assert (said.environments, said.datasets, said.domino_api) == (None, {}, None)


def test_datasets_have_their_folders_by_name_and_by_environment() -> None:
    said = settings(
        {"TIDEGATE_DATASETS": "models=/mnt/models, prod/models = /mnt/prod,", "DOMINO_API_PROXY": "http://d/"}
    )
    assert said.datasets == {"models": Path("/mnt/models"), "prod/models": Path("/mnt/prod")}
    assert said.domino_api == "http://d"


@pytest.mark.parametrize("text", ["models", "models=", "=/mnt", "models=mnt/models", "models=/a,models=/b"])
def test_datasets_that_cannot_be_read_are_told_with_an_example_and_the_name_of_the_variable(text: str) -> None:
    with pytest.raises(UsageError, match=r"^TIDEGATE_DATASETS: "):
        settings({"TIDEGATE_DATASETS": text})


@pytest.mark.parametrize(
    ("variable", "text"),
    [("TIDEGATE_DATASETS", "models=~nobody-of-that-name/x"), ("TIDEGATE_ENVIRONMENTS", "~nobody-of-that-name/x")],
)
def test_a_home_of_somebody_who_is_not_here_is_told_with_the_name_of_the_variable(variable: str, text: str) -> None:
    with pytest.raises(UsageError, match=rf"^{variable}: .*is not here"):
        settings({variable: text})
