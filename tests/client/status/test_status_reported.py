import json
import time
from functools import partial
from pathlib import Path

import pytest
from tidegate import Tidegate
from tidegate.cli.app import app
from tidegate.errors import NotFoundError, UsageError
from tidegate.status import proxies, proxy_of
from tidegate_contracts import environments as facts
from tidegate_contracts import routing
from tidegate_proxy.problems import CONTENT_TYPE, Problem, ProblemType
from typer.testing import CliRunner

from tests.proxy.http.upstream import Received, raw, replying, response, running_upstream

POOL = facts.PoolFacts(name="main", loading="preload", gpu=True)
VOLUME = facts.DatasetLocation(dataset="models", volume="v")
SERVER = facts.ServerFacts(name="gpu", kind="triton", location=VOLUME, pools=(POOL,))


def plane(name: str, wave: int, *models: str) -> facts.Plane:
    made = tuple(facts.ModelFacts(name=model, server="gpu", pool="main") for model in models)
    return facts.Plane(name=name, wave=wave, proxy_url=f"https://{name}.example.com", servers=(SERVER,), models=made)


PLANES = {
    "dev": (plane("lab", 1, "fraud", "draft"),),
    "prod": (plane("west", 2, "fraud", "churn"), plane("east", 1, "fraud")),
    "nowhere": (),
}
KNOWN = facts.Environments(environments=tuple(facts.Environment(name=n, planes=p) for n, p in PLANES.items()))


@pytest.fixture(autouse=True)
def known(tmp_path: Path) -> None:
    (tmp_path / "environments.json").write_text(KNOWN.model_dump_json(by_alias=True))


def only_dev(folder: Path, url: str, *models: facts.ModelFacts, servers: tuple[facts.ServerFacts, ...] = ()) -> None:
    """Write an environment with one data plane, whose proxy is at this address."""
    lab = plane("lab", 1).model_copy(update={"models": models, "servers": (SERVER, *servers), "proxy_url": url})
    known = facts.Environments(environments=(facts.Environment(name="dev", planes=(lab,)),))
    (folder / "environments.json").write_text(known.model_dump_json(by_alias=True))


def test_by_default_every_environment_is_queried_in_the_order_of_a_rollout() -> None:
    names = [(each.environment, each.plane) for each in proxies()]
    assert names == [("dev", "lab"), ("prod", "east"), ("prod", "west")]


def test_only_the_named_environment_and_data_plane_are_shown() -> None:
    assert [each.plane for each in proxies("prod")] == ["east", "west"]
    assert [each.url for each in proxies("prod", "west")] == ["https://west.example.com"]
    assert [each.environment for each in proxies(None, "lab")] == ["dev"]
    assert [each.url for each in proxies(None, None, "proxy:80")] == ["http://proxy"]


def test_the_file_of_environments_counts_before_the_variable_of_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOMINO_INFERENCE_PROXY", "proxy")
    assert len(proxies()) == 3
    monkeypatch.delenv("TIDEGATE_ENVIRONMENTS")
    assert [each.url for each in proxies()] == ["https://proxy"]


def test_a_model_is_called_on_the_first_data_plane_of_a_rollout() -> None:
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


def test_a_missing_name_is_reported_with_the_nearest_and_no_credential_is_shown() -> None:
    with pytest.raises(NotFoundError, match="did you mean churn"):
        proxy_of("chrun")
    for words, message in (
        (("pord",), "did you mean prod"),
        (("prod", "eats"), "mean east"),
        (("nowhere",), "has no data plane"),
    ):
        with pytest.raises(NotFoundError, match=message):
            proxies(*words)
    assert "tgk_1" not in repr(proxies())


WHO = {"environment": "dev", "principal": "me", "source": "api-keys"}


MISSING = "no version of it is in memory"


def found_at(model: str, state: str, **more: object) -> dict[str, object]:
    """Return a model at the only replica of its pool, as in a proxy's response."""
    place = {"replica": "10.0.0.1:8000", "state": state} | more
    about = {"server": "gpu", "pool": "main", "loading": "preload", "model": model}
    return about | {"state": state, "places": [place]} | more


def listed(received: Received, *models: dict[str, object]) -> bytes:
    name = received.path.removeprefix("/models").strip("/")
    some = [each for each in models if name in ("", each["model"])]
    return response(json.dumps({"environment": "dev", "models": some}).encode())


def proxy(received: Received) -> bytes:
    """Respond like a proxy whose Triton has one of three models. The alias of another one is not set."""
    path = received.path
    if path == "/whoami":
        return response(json.dumps(WHO).encode())
    if path.startswith("/models"):
        there, unknown = found_at("there", "resident", versions=[1]), partial(found_at, state="unknown", why=MISSING)
        return listed(received, there, unknown("plain"), unknown("aliased"))
    if "/there" in path:
        return response()
    if "/aliased" in path:
        problem = Problem(ProblemType.BUSY, "which version the alias stands for is not known", retry_after=1.0)
        return response(problem.body("r"), problem.type.status, CONTENT_TYPE)
    return response(b'{"error": "unknown model"}', 400)


def test_a_model_that_is_not_deployed_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with running_upstream(replying(proxy)) as here:
        aliased = facts.ModelFacts(name="aliased", server="gpu", pool="main", alias="champion")
        only_dev(tmp_path, f"http://{here.http}", *plane("lab", 1, "there", "plain").models, aliased)
        message = CliRunner().invoke(app, ["status"])
        assert (message.exit_code, message.stdout.count("unknown")) == (0, 2), message.output
        assert message.stderr.count(f"aliased, plain: {MISSING}") == 1
        [found] = json.loads(CliRunner().invoke(app, ["status", "--json"]).stdout)
        assert {each["model"]: each["state"] for each in found["models"]} == {
            "there": "resident", "plain": "unknown", "aliased": "unknown",
        }  # fmt: skip
        with Tidegate() as tidegate:
            [found] = tidegate.status("plain", environment="dev")
        assert [each.state for each in found.models] == ["unknown"]


def test_the_configuration_of_a_model_is_requested_only_if_it_is_shown() -> None:
    with running_upstream(replying(proxy)) as here:
        for words, requested in (((), []), (("there",), ["/servers/gpu/v2/models/there/config"])):
            here.requests.clear()
            message = CliRunner().invoke(app, ["status", *words, "--proxy", f"http://{here.http}"])
            assert message.exit_code == 0, message.output
            assert [each.path for each in here.requests if each.path.endswith("/config")] == requested


def without_gpu(received: Received) -> bytes:
    """Respond like a proxy that has lost one of two Tritons, and has only a Retry-After."""
    if received.path.startswith("/servers/gpu"):
        problem = Problem(ProblemType.BUSY, "No replica of gpu/main can be used: there is no answer.", retry_after=30.0)
        return response(problem.body("r"), problem.type.status, CONTENT_TYPE, Retry_After="30")
    if received.path == "/models":
        why = "10.0.0.1:8000 gets no calls: there is no answer"
        lost = [found_at(name, "unreachable", why=why) for name in ("lost", "lost-too")]
        return listed(received, *lost, found_at("there", "resident", versions=[1]) | {"server": "cpu"})
    return proxy(received)


def test_a_model_that_is_loaded_when_it_is_called_is_shown_with_the_versions_that_are_named(tmp_path: Path) -> None:
    def cold(received: Received) -> bytes:
        draft = found_at("draft", "cold") | {"loading": "on-demand"}
        return listed(received, draft) if received.path == "/models" else proxy(received)

    with running_upstream(replying(cold)) as here:
        shares = tuple(routing.VersionShare(version=version, weight=weight) for version, weight in ((3, 90), (4, 10)))
        draft = facts.ModelFacts(name="draft", server="gpu", pool="main", versions=shares)
        only_dev(tmp_path, f"http://{here.http}", draft)
        message = CliRunner().invoke(app, ["status"])
        rows = [line.split("│") for line in message.stdout.splitlines() if "│" in line]
        assert [row[-2].strip() for row in rows] == ["3", "4"], message.output
        [found] = json.loads(CliRunner().invoke(app, ["status", "--json"]).stdout)
        [model] = found["models"]
        assert (model["versions"], model["named"], model["missing"]) == ([], [3, 4], [])


@pytest.mark.parametrize("words", [(), ("there",)])
def test_another_server_is_not_reported_as_a_proxy_without_the_model(words: tuple[str, ...]) -> None:
    with running_upstream(raw(response(b"", 404))) as here:
        message = CliRunner().invoke(app, ["status", *words, "--proxy", f"http://{here.http}"])
    assert (message.exit_code != 0, "/whoami" in message.output, "no model" in message.output) == (True, True, False)


def test_a_silent_server_is_shown_for_its_models_and_hides_no_other(tmp_path: Path) -> None:
    with running_upstream(replying(without_gpu)) as here:
        there = facts.ModelFacts(name="there", server="cpu", pool="main")
        models = *plane("lab", 1, "lost", "lost-too").models, there
        only_dev(tmp_path, f"http://{here.http}", *models, servers=(SERVER.model_copy(update={"name": "cpu"}),))
        began = time.monotonic()
        message = CliRunner().invoke(app, ["status", "--json"])
        assert time.monotonic() - began < 5, "it does not wait for what may be back"
        assert message.exit_code == 0, message.output
        [found] = json.loads(message.stdout)
        assert found["error"] == ""
        caught = {each["model"]: (each["state"], each["why"]) for each in found["models"]}
        assert caught["there"] == ("resident", "")
        assert caught["lost"] == ("unreachable", "10.0.0.1:8000 gets no calls: there is no answer")
        message = CliRunner().invoke(app, ["status"])
        assert message.stderr == "dev on lab: lost, lost-too: 10.0.0.1:8000 gets no calls: there is no answer\n"
