"""A shell completes names of models and environments as the proxies and the file of environments have them."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from tidegate.cli import completion
from tidegate_contracts import environments as facts

from lab.local_plane.process import HOST, free_ports
from tests.proxy.rigs.upstream import Caller, upstream

from .test_cli_app import tidegate

KEY = "tgk_1"
NAMES = {"dev": ["fraud", "draft"], "prod": ["fraud", "churn"]}


def answer(caller: Caller) -> None:
    """Answer as a proxy does below the path of its environment, to the one caller that it knows."""
    environment = caller.request.path.split("/")[1]
    if caller.request.path != f"/{environment}/models" or caller.request.headers.get("x-api-key") != KEY:
        caller.answer(status=404)
        return
    about = {"server": "gpu", "pool": "main", "loading": "preload", "state": "resident"}
    models = [{"model": name} | about for name in NAMES[environment]]
    caller.answer(json.dumps({"environment": environment, "models": models}).encode())


def write(file: Path, url: str) -> None:
    planes = {name: facts.Plane(name="east", proxy_url=f"{url}/{name}", servers=()) for name in NAMES}
    known = facts.Environments(environments=tuple(facts.Environment(name=n, planes=(p,)) for n, p in planes.items()))
    file.write_text(known.model_dump_json(by_alias=True))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with upstream(answer) as proxy:
        file = tmp_path_factory.mktemp("known") / "environments.json"
        write(file, f"http://{HOST}:{proxy.port}")
        yield file


def completed(words: str, file: Path) -> list[str]:
    place = str(len(words.split(" ")) - 1)
    told = {"TIDEGATE_ENVIRONMENTS": str(file), "TIDEGATE_API_KEY": KEY}
    said = tidegate(_TIDEGATE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=place, **told)
    assert (said.returncode, said.stderr) == (0, ""), said.stderr
    return said.stdout.split()


@pytest.mark.parametrize(
    ("words", "names"),
    [("why ", ["churn", "draft", "fraud"]), ("why f", ["fraud"]), ("models --environment dev ", ["draft", "fraud"]),
     ("predict -e prod c", ["churn"]), ("promote fraud --to p", ["prod"]), ("prune ", ["dev", "prod"])],
)  # fmt: skip
def test_names_are_those_that_the_caller_may_see(file: Path, words: str, names: list[str]) -> None:
    assert completed(f"tidegate {words}", file) == names


@pytest.mark.parametrize("content", [None, "no JSON"], ids=["nobody listens", "not readable"])
def test_what_fails_completes_nothing_and_says_nothing(tmp_path: Path, content: str | None) -> None:
    known = tmp_path / "environments.json"
    if content is None:
        write(known, f"http://{HOST}:{free_ports(1)[0]}")
    else:
        known.write_text(content)
    assert completed("tidegate why ", known) == []


def test_whoever_types_does_not_wait_for_a_proxy_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "SECONDS", 0.2)
    never = Event()
    began = time.monotonic()

    def hang(_: completion.Add) -> None:
        never.wait(60)

    assert completion._soon([hang, lambda add: add("here")]) == ["here"]
    assert time.monotonic() - began < 10
    never.set()
