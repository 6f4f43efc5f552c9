"""A language model from a registration to production and back: real MLflow, S3, proxies, and Dynamo with its mocker."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import openai
import pytest
import yaml
from tidegate import Tidegate
from tidegate.cli.app import app
from tidegate.errors import ExitCode, NotFoundError, UsageError
from tidegate_contracts import environments, routing
from tidegate_contracts.openai import served_as
from tidegate_proxy.access.api_keys import new_key
from typer.testing import CliRunner

from lab.demo.playing import until
from lab.local_plane.dynamo import Dynamo, dynamo
from lab.local_plane.mlflow import mlflow_server
from lab.local_plane.object_store import object_store
from lab.local_plane.process import HOST
from lab.local_plane.proxy import Proxy, proxy, write_tables
from stacks.definition.models import VersionShare
from tests.proxy.openai.tables import access, openai_server
from tests.proxy.rigs.pytest_rigs import not_run
from tests.proxy.rigs.tables import write_key

from .models import write_entry

SERVER, WHO = "llm", "anna"
PAGE = re.findall(
    r"```sh\n(.*?)```\n\n```text\n(.*?)```",
    (Path(__file__).resolve().parents[3] / "docs/openai.md").read_text("utf-8").partition("\n## A model's life\n")[2],
    re.DOTALL,
)
CHAT = {"messages": [{"role": "user", "content": "word1"}], "temperature": 0, "max_tokens": 3}
Shares = dict[int, int]


@dataclass
class Tier:
    name: str
    root: Path
    engines: Dynamo
    proxy: Proxy
    source: str | None = None
    soak_hours: float = 0
    shares: Shares = field(default_factory=dict)

    @property
    def repository(self) -> Path:
        return self.root / "dataset" / "models"

    def define(self, shares: Shares) -> None:
        """Name these versions, each with a separate pool, and start their engines, like a platform admin."""
        self.shares = shares
        for number in shares:
            name = served_as("chat", number)
            if name not in self.engines.workers:
                self.engines.start(name, self.repository / "chat" / str(number))
        self.write()

    def write(self) -> None:
        pools = {f"v{number}": HOST for number in self.shares}
        server = openai_server(SERVER, HOST, self.engines.http_port, **pools)
        models = [
            routing.Model(name="chat", server=SERVER, pool=f"v{each.version}", versions=(each,))
            for each in self.versions
        ] or [routing.Model(name="chat", server=SERVER, pool="main")]
        table = routing.RoutingTable(environment=self.name, servers=(server,), models=tuple(models))
        write_tables(self.root / "proxy", table, access((WHO, ["*"], ["infer", "inspect"])))

    @property
    def versions(self) -> tuple[routing.VersionShare, ...]:
        return tuple(routing.VersionShare(version=number, weight=weight) for number, weight in self.shares.items())

    def facts(self) -> environments.Environment:
        pool = environments.PoolFacts(name="main", loading="preload", gpu=False, memory_bytes=1 << 30)
        at = environments.DatasetLocation(dataset="models", path="models", volume=str(self.root))
        server = environments.ServerFacts(name=SERVER, kind="openai", location=at, pools=(pool,))
        model = environments.ModelFacts(name="chat", server=SERVER, pool="main", versions=self.versions)
        plane = environments.Plane(
            name="here", proxy_url=f"http://{self.proxy.http}", servers=(server,), models=(model,)
        )
        promotion = environments.Promotion(source=self.source, soak_hours=self.soak_hours)
        return environments.Environment(name=self.name, promotion=promotion, planes=(plane,))


@dataclass
class World:
    root: Path
    dev: Tier
    prod: Tier
    key: str
    err: str = ""

    def run(self, *words: str, code: int = 0) -> str:
        known = environments.Environments(environments=(self.dev.facts(), self.prod.facts()))
        (self.root / "environments.json").write_text(known.model_dump_json(by_alias=True))
        done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
        assert done.exit_code == code, done.output
        self.err = " ".join(done.stderr.split())
        return done.stdout

    def line(self) -> VersionShare:
        """Return the missing line of the definition, from the last message."""
        [text] = re.findall(r"- ({version: .*?})", self.err)
        output = yaml.safe_load(text)
        if "pool" in output:
            assert output["pool"] == f"<a pool of {SERVER}>"
            output["pool"] = "v2"
        return VersionShare.model_validate(output)

    def register(self, word: str, golden: str) -> int:
        folder = self.prepare(word, golden)
        output = json.loads(
            self.run("register", str(folder / "chat"), "--golden", str(folder / "golden.json"), "--json")
        )
        assert output["clientModel"] is None
        number: int = output["number"]
        return number

    def prepare(self, word: str, golden: str) -> Path:
        folder = self.root / word
        if not folder.exists():
            write_entry(folder / "chat", word, sharded=True)
        golden_request = {"request": CHAT, "outputs": {"text": [golden]}}
        (folder / "golden.json").write_text(json.dumps(golden_request))
        return folder

    def answer(self, tier: Tier, model: str = "chat") -> str | None:
        client = openai.OpenAI(base_url=f"http://{tier.proxy.http}/v1", api_key=self.key, max_retries=3)
        output = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}], max_tokens=1)
        return output.choices[0].message.content

    def knows(self, tier: Tier, model: str) -> bool:
        try:
            self.answer(tier, model)
        except openai.NotFoundError:
            return False
        return True


@contextmanager
def tier(name: str, root: Path, key: str, source: str | None = None) -> Iterator[Tier]:
    (root / "dataset" / "models").mkdir(parents=True)
    (root / "proxy").mkdir()
    write_key(root / "proxy", key, WHO)
    with dynamo(root / "dynamo", []) as engines:
        write_tables(root / "proxy", routing.RoutingTable(environment=name, servers=(), models=()), access())
        with proxy(root / "proxy", settings={"api_keys": "true", "environment": name}) as front:
            made = Tier(name, root, engines, front, source)
            made.write()
            yield made


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    key = new_key()
    with ExitStack() as running, not_run("A REAL MLFLOW, S3 AND DYNAMO"):
        store = running.enter_context(object_store(tmp_path / "s3"))
        place = f"{store.make_bucket('artifacts')}/mlflow"
        server = running.enter_context(mlflow_server(tmp_path / "mlflow", place, store.variables))
        dev = running.enter_context(tier("dev", tmp_path / "dev", key))
        prod = running.enter_context(tier("prod", tmp_path / "prod", key, "dev"))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
        monkeypatch.setenv("TIDEGATE_ENVIRONMENTS", str(tmp_path / "environments.json"))
        datasets = ",".join(f"{each.name}/models={each.root / 'dataset'}" for each in (dev, prod))
        monkeypatch.setenv("TIDEGATE_DATASETS", datasets)
        monkeypatch.setenv("TIDEGATE_API_KEY", key)
        yield World(tmp_path, dev, prod, key)


def test_a_language_model_goes_from_a_registration_to_production_and_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev, prod = world.dev, world.prod
    monkeypatch.chdir(world.prepare("one", "oneoneone"))

    # Published and verified, but not served yet, as on the page.
    [(commands, shown)] = PAGE
    for line in commands.splitlines():
        command, _, may_fail = line.partition(" || ")
        world.run(*shlex.split(command)[1:], code=ExitCode.UNFINISHED if may_fail else ExitCode.OK)
    for line in shown.splitlines()[1:-1]:
        assert line.strip(" …") in world.err
    assert shown.endswith(f"exit code {ExitCode.UNFINISHED:d}\n")
    assert "no engine serves version 1 yet" in world.err
    assert world.line() == VersionShare(version=1, weight=100)
    published = dev.repository / "chat" / "1"
    for file in (world.root / "one" / "chat").iterdir():
        assert (published / file.name).read_bytes() == file.read_bytes()
    assert (published / ".manifest.json").is_file()

    # The definition names it. Its engine starts later, and the same command continues.
    dev.shares = {1: 100}
    dev.write()
    world.run("deploy", "chat", "--wait", "0", code=ExitCode.UNFINISHED)
    assert "version 1 is not ready after 0 s" in world.err
    assert "add to `versions`" not in world.err
    dev.define({1: 100})
    assert world.run("deploy", "chat") == "dev has version 1 of chat\n"
    assert "version 1 answers its golden request on here" in world.err
    assert "publishing" not in world.err
    assert world.run("deploy", "chat") == "dev already has version 1 of chat\n"
    assert world.answer(dev) == "one"
    words = ("--input", "prompt=word1", "--input", "max_tokens=2", "--environment", "dev")
    assert world.run("predict", "chat@1", *words) == "oneone\n"
    with Tidegate(tell=lambda _: None) as tidegate:
        assert tidegate.predict("chat", CHAT, environment="dev")["text"] == ["oneoneone"]
        with pytest.raises(UsageError, match="neither a chat"):
            tidegate.predict("chat", {"IN": [1]}, environment="dev")
        with pytest.raises(NotFoundError, match="has nothing of this name"):
            tidegate.predict("chat@7", CHAT, environment="dev")

    # A second version in addition, whose golden request has the answer of the first.
    assert world.register("two", "oneoneone") == 2
    world.run("deploy", "chat", code=ExitCode.UNFINISHED)
    assert world.line() == VersionShare(version=2, weight=0, pool="v2")
    assert "the served versions are unchanged" in world.err
    dev.define({1: 100, 2: 0})
    world.run("deploy", "chat", code=ExitCode.UNFINISHED)
    assert "answers its golden request differently" in world.err
    assert "'twotwotwo' instead of 'oneoneone'" in world.err
    assert world.answer(dev) == "one"
    assert (
        "version 2 was never in dev"
        in world.run("promote", "chat@2", "--to", "prod", code=ExitCode.REFUSED) + world.err
    )

    # The right golden request: the version is served, and the definition sends calls to it.
    assert world.register("two", "twotwotwo") == 2
    assert world.run("deploy", "chat") == "dev has version 2 of chat (before: version 1)\n"
    assert "no calls go to it" in world.err
    assert (world.answer(dev), world.answer(dev, "chat-v2")) == ("one", "two")
    dev.define({1: 0, 2: 100})
    world.run("deploy", "chat")
    assert "no calls go to it" not in world.err

    # In prod, whose definition is separate, no failures are counted.
    prod.soak_hours = 1e-9
    world.run("promote", "chat", "--to", "prod", code=ExitCode.REFUSED)
    assert "has no statistics" in world.err
    prod.soak_hours = 0
    world.run("promote", "chat", "--to", "prod", code=ExitCode.UNFINISHED)
    assert world.line() == VersionShare(version=2, weight=100)
    prod.define({2: 100})
    assert world.run("promote", "chat", "--to", "prod") == "prod has version 2 of chat\n"
    assert world.answer(prod) == "two"

    # Back, while the definition has the earlier version too.
    dev.define({2: 100})
    until("the proxy has no version 1", lambda: not world.knows(dev, "chat-v1"))
    world.run("rollback", "chat", "--in", "dev", code=ExitCode.UNFINISHED)
    assert world.line() == VersionShare(version=1, weight=0, pool="v2")
    dev.define({1: 0, 2: 100})
    assert world.run("rollback", "chat", "--in", "dev") == "dev has version 1 of chat (before: version 2)\n"
    assert "no calls go to it" in world.err
    dev.define({1: 100, 2: 0})
    assert "dev already has version 1" in world.run("rollback", "chat", "--in", "dev", "--version", "1")
    assert "no calls go to it" not in world.err

    # The published versions can be verified, and are as registered.
    assert "chat" in world.run("status", "chat", "--environment", "dev")
    assert "resident" in world.run("why", "chat", "--environment", "dev")
    assert "0 findings" in world.run("verify", "dev")
    assert "unserved version" in world.run("prune", "dev")
    world.run("undeploy", "chat", "--from", "dev", "--yes", code=ExitCode.REFUSED)
    assert f"the definition decides what {SERVER} serves" in world.err
    (published / "config.json").write_text("{}")
    assert "1/config.json" in world.run("verify", "dev", code=ExitCode.INTEGRITY)
