"""Which proxies are asked, by what was said of where."""

from pathlib import Path

import pytest
from tidegate.errors import NotFoundError, UsageError
from tidegate.status.proxies import proxies, proxy_of
from tidegate_contracts.environments import (
    DatasetLocation,
    Environment,
    Environments,
    ModelFacts,
    Plane,
    PoolFacts,
    ServerFacts,
)  # fmt: skip

POOL = PoolFacts(name="main", loading="preload", gpu=True)
SERVER = ServerFacts(name="gpu", kind="triton", location=DatasetLocation(dataset="models", volume="v"), pools=(POOL,))


def plane(name: str, wave: int, *models: str) -> Plane:
    facts = tuple(ModelFacts(name=model, server="gpu", pool="main") for model in models)
    return Plane(name=name, wave=wave, proxy_url=f"https://{name}.example.com", servers=(SERVER,), models=facts)


KNOWN = Environments(
    environments=(
        Environment(name="dev", planes=(plane("lab", 1, "fraud", "draft"),)),
        Environment(name="prod", planes=(plane("west", 2, "fraud", "churn"), plane("east", 1, "fraud"))),
        Environment(name="nowhere", planes=()),
    )
)


@pytest.fixture(autouse=True)
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "environments.json").write_text(KNOWN.model_dump_json(by_alias=True))
    monkeypatch.setenv("TIDEGATE_ENVIRONMENTS", str(tmp_path / "environments.json"))
    for name in ("DOMINO_INFERENCE_PROXY", "DOMINO_API_PROXY", "DOMINO_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TIDEGATE_API_KEY", "tgk_1")


def urls(*words: str | None) -> list[str]:
    return [each.url for each in proxies(*words)]


def test_without_a_word_every_environment_is_asked_in_the_order_of_a_rollout() -> None:
    names = [(each.environment, each.plane) for each in proxies()]
    assert names == [("dev", "lab"), ("prod", "east"), ("prod", "west")]


def test_an_environment_and_a_data_plane_are_those_that_are_named() -> None:
    assert urls("prod") == ["https://east.example.com", "https://west.example.com"]
    assert urls("prod", "west") == ["https://west.example.com"]
    assert urls(None, "lab") == ["https://lab.example.com"]
    assert urls(None, None, "proxy:80") == ["http://proxy"]


def test_the_file_of_environments_counts_before_the_variable_of_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOMINO_INFERENCE_PROXY", "proxy")
    assert len(proxies()) == 3
    monkeypatch.delenv("TIDEGATE_ENVIRONMENTS")
    assert urls() == ["https://proxy"]


def test_a_model_is_called_where_it_is_first_in_a_rollout() -> None:
    assert proxy_of("fraud", "prod").plane == "east"
    assert proxy_of("churn").plane == "west"
    assert proxy_of("draft").environment == "dev"
    assert proxy_of("fraud", "prod", "west").plane == "west"


def test_a_model_of_two_environments_is_called_in_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="dev, prod"):
        proxy_of("fraud")
    monkeypatch.setenv("DOMINO_INFERENCE_PROXY", "https://east.example.com")
    assert proxy_of("fraud").url == "https://east.example.com"
    assert proxy_of("fraud", "dev").url == "https://lab.example.com"


def test_what_there_is_not_is_told_with_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="did you mean churn"):
        proxy_of("chrun")
    with pytest.raises(NotFoundError, match="did you mean prod"):
        proxies("pord")
    with pytest.raises(NotFoundError, match="did you mean east"):
        proxies("prod", "eats")
    with pytest.raises(NotFoundError, match="lives nowhere"):
        proxies("nowhere")


def test_the_credential_is_not_shown() -> None:
    assert "tgk_1" not in repr(proxies())
