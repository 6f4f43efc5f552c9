import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from tidegate.cli.app import app
from tidegate.errors import ExitCode
from tidegate_contracts import environments as facts
from tidegate_contracts import routing
from tidegate_proxy.access.api_keys import new_key
from typer.testing import CliRunner

from lab.local_plane.process import HOST
from lab.local_plane.proxy import proxy, write_tables
from tests.proxy.http.upstream import Received, replying, response, running_upstream
from tests.proxy.openai.tables import access
from tests.proxy.rigs.tables import write_key

NAMES = "meta/llama-3.1-8b-instruct", "llama3:8b"  # further names of the model `plain`


def reply(name: str, received: Received) -> bytes:
    answers = {"/v1/models": {"data": [{"id": name}]}, "/v1/completions": {"choices": [{"text": f"of {name}"}]}}
    return response(json.dumps(answers.get(received.path, {})).encode())


def pool(name: str, port: int) -> routing.Pool:
    return routing.Pool(name=name, host=HOST, http_port=port, loading="preload")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables of a caller of a proxy with two engines, one of which serves another version than it should."""
    root, key = tmp_path_factory.mktemp("engines"), new_key()
    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(running_upstream(replying(partial(reply, name))))
            for name in ("chat-v3", "chat-v2", "plain")
        }
        pools = tuple(
            pool(*each) for each in zip(("blue", "green", "main"), (at.port for at in engines.values()), strict=True)
        )
        shares = [routing.VersionShare(version=version, weight=weight) for version, weight in ((3, 80), (4, 20))]
        table = routing.RoutingTable(
            environment="prod",
            servers=(routing.Server(name="llm", kind="openai", pools=pools),),
            models=(
                routing.Model(name="chat", server="llm", pool="blue", versions=(shares[0],)),
                routing.Model(name="chat", server="llm", pool="green", versions=(shares[1],)),
                routing.Model(name="plain", server="llm", pool="main", served_names=NAMES),
                routing.Model(name="secret", server="llm", pool="main"),
            ),
        )
        write_tables(root, table, access(("me", ["chat", "plain"], ["infer", "inspect"])))
        write_key(root, key, "me")
        running = stack.enter_context(proxy(root, settings={"api_keys": "true"}))
        models = (
            facts.ModelFacts(name="chat", server="llm", pool="blue", versions=tuple(shares)),
            facts.ModelFacts(name="plain", server="llm", pool="main", served_names=NAMES),
            facts.ModelFacts(name="secret", server="llm", pool="main"),
        )
        of_server = [facts.PoolFacts(name=each.name, loading="preload", gpu=True) for each in pools]
        location = facts.DatasetLocation(dataset="models", volume="v")
        llm = facts.ServerFacts(name="llm", kind="openai", location=location, pools=tuple(of_server))
        plane = facts.Plane(name="here", proxy_url=f"http://{running.http}", servers=(llm,), models=models)
        known = facts.Environments(environments=(facts.Environment(name="prod", planes=(plane,)),))
        (root / "environments.json").write_text(known.model_dump_json(by_alias=True))
        yield {"TIDEGATE_ENVIRONMENTS": str(root / "environments.json"), "TIDEGATE_API_KEY": key, "COLUMNS": "200"}


def run(seen: dict[str, str], *words: str) -> str:
    nowhere = dict.fromkeys(("DOMINO_INFERENCE_PROXY", "TIDEGATE_TOKEN", "DOMINO_API_PROXY"))
    done = CliRunner().invoke(app, [*words], env=nowhere | seen)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def test_status_shows_ready_versions_and_hides_models_of_others(seen: dict[str, str]) -> None:
    [plane] = json.loads(run(seen, "status", "--json"))
    found = {each["model"]: each for each in plane["models"]}
    assert {name: each["state"] for name, each in found.items()} == {"chat": "resident", "plain": "resident"}
    assert (found["chat"]["versions"], found["chat"]["missing"]) == ([3], [4])
    assert "4 (not ready)" in run(seen, "status")


def test_every_command_shows_each_models_place_or_the_reason(seen: dict[str, str]) -> None:
    [plane] = json.loads(run(seen, "why", "chat", "--json"))
    [green] = [place for place in plane["models"][0]["places"] if place["pool"] == "green"]
    assert (green["state"], green["why"]) == ("unknown", "its engine does not serve chat-v4: it serves chat-v2")
    for words in (("status",), ("top", "--once"), ("why", "chat")):
        assert "does not serve chat-v4" in run(seen, *words)
    assert "llm/green" in run(seen, "why", "chat")


@pytest.mark.parametrize("name", ["plain", *NAMES])
def test_any_name_of_a_model_works_for_status_and_calls(seen: dict[str, str], name: str) -> None:
    for command in ("status", "why"):
        [plane] = json.loads(run(seen, command, name, "--json"))
        assert [(each["model"], each["state"]) for each in plane["models"]] == [("plain", "resident")]
    assert run(seen, "predict", name, "--input", "prompt=Hello") == "of plain\n"
    refused = CliRunner().invoke(app, ["predict", f"{name}x", "--input", "prompt=Hello"], env=seen)
    assert refused.exit_code == ExitCode.NOT_FOUND
    assert f"did you mean {name}?" in " ".join(refused.output.split())
