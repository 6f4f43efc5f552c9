"""The demo's world: MLflow with S3, dev and prod with two Triton servers each, and people with a command line."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidegate_contracts import environments, routing
from tidegate_proxy.access.api_keys import new_key

from lab.local_plane.environment import (
    ON_DEMAND,
    POOL,
    PRELOAD,
    LocalEnvironment,
    Plan,
    datasets_variable,
    environments_file,
    local_environment,
)
from lab.local_plane.mlflow import MLflow, mlflow_server
from lab.local_plane.object_store import ObjectStore, object_store
from lab.local_plane.process import Parts, Process

ROOT = Path(__file__).resolve().parents[3]
DEV, PROD = "dev", "prod"
DEVELOPER, DEPLOYER, ENDPOINT = "developer", "deployer", "model-endpoint"
PEOPLE = (DEVELOPER, DEPLOYER, ENDPOINT)
CHURN, OCR = "churn", "invoice-ocr"  # On the preload server, and on the on-demand server.
COMMAND_SECONDS = 120
STORE, REGISTRY, BUCKET = "MinIO", "MLflow", "mlflow"
MODELS = (
    routing.Model(name=CHURN, server=PRELOAD, pool=POOL, footprint_bytes=32 << 20),
    routing.Model(name=OCR, server=ON_DEMAND, pool=POOL, footprint_bytes=48 << 20),
)


@dataclass(frozen=True)
class Result:
    """The result of a command."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class World(Parts):
    """All running processes, and the people's settings."""

    root: Path
    keys: Mapping[str, str] = field(repr=False)  # The API key of each of PEOPLE, the same in dev and prod.
    registry: MLflow = field(init=False)
    store: ObjectStore = field(init=False)
    dev: LocalEnvironment = field(init=False)
    prod: LocalEnvironment = field(init=False)
    environments: Path = field(init=False)

    @property
    def work(self) -> Path:
        """The directory in which people run their commands."""
        return self.root / "work"

    def settings(self, who: str) -> dict[str, str]:
        """Return the variables with which a person's shell finds the platform and the registry."""
        return {
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "client", ROOT / "contracts"))),
            "MLFLOW_TRACKING_URI": self.registry.uri,
            "TIDEGATE_ENVIRONMENTS": str(self.environments),
            "TIDEGATE_DATASETS": datasets_variable((self.dev, self.prod)),
            "TIDEGATE_API_KEY": self.keys[who],
            "USER": who,
            "LOGNAME": who,
        }

    def variables(self, who: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return all environment variables of a person's shell."""
        others = {
            name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "DOMINO_", "AWS_"))
        }
        return others | self.settings(who) | dict(more or {})

    def tidegate(self, who: str, *words: str) -> Result:
        """Run a command of the client as one of PEOPLE."""
        return _ended(self.running(who, *words))

    def running(self, who: str, *words: str) -> AbstractContextManager["subprocess.Popen[str]"]:
        """Run a command of the client in the background. It ends with the block."""
        return self._interpreter(who, "-m", "tidegate", *words)

    def python(self, who: str, program: str, more: Mapping[str, str]) -> Result:
        """Run a Python program as one of PEOPLE, in a new interpreter."""
        return _ended(self._interpreter(who, "-c", program, more=more))

    @contextmanager
    def _interpreter(
        self, who: str, *arguments: str, more: Mapping[str, str] | None = None
    ) -> Iterator["subprocess.Popen[str]"]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.work,
            env=self.variables(who, more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def split(self, shares: Mapping[int, int]) -> None:
        """Split CHURN's traffic in production, in per cent by version. Without shares, the newest version gets all."""
        versions = tuple(routing.VersionShare(version=version, weight=weight) for version, weight in shares.items())
        models = tuple(
            model.model_copy(update={"versions": versions}) if model.name == CHURN else model
            for model in self.prod.plan.models
        )
        self.prod.serve(replace(self.prod.plan, models=models))
        environments_file(self.root, (self.dev, self.prod))

    @property
    def parts(self) -> dict[str, Process]:
        found = {STORE: self.store.process, REGISTRY: self.registry.process}
        for of in (self.dev, self.prod):
            found |= {f"{of.plan.name} {name}": process for name, process in of.parts.items()}
        return found


def _ended(command: AbstractContextManager["subprocess.Popen[str]"]) -> Result:
    with command as process:
        out, err = process.communicate(timeout=COMMAND_SECONDS)
    return Result(process.returncode, out, err)


def plans() -> tuple[Plan, Plan]:
    """Return dev, where developers deploy, and prod, to which only the deployer may promote."""
    may_look = routing.AccessRule(
        name="developers-look", principals=(DEVELOPER,), actions=("inspect",), servers=("*",), models=("*",)
    )
    may_call = routing.AccessRule(
        name="deployers-and-endpoints",
        principals=(DEPLOYER, ENDPOINT),
        actions=("infer", "inspect"),
        servers=("*",),
        models=("*",),
    )
    promotion = environments.Promotion(source=DEV, principals=(DEPLOYER,), separation_of_duties=True)
    return (
        Plan(name=DEV, models=MODELS, callers=PEOPLE),
        Plan(
            name=PROD, models=MODELS, callers=PEOPLE, rules=(may_look, may_call), promotion=promotion, production=True
        ),
    )


@contextmanager
def world(root: Path) -> Iterator[World]:
    """Run the world in a directory until the block ends. Raises CannotBeHadError and ProcessError."""
    made = World(root, {who: new_key() for who in PEOPLE})
    made.work.mkdir()
    with ExitStack() as stack:
        made.store = stack.enter_context(object_store(root / "minio"))
        artifacts = f"{made.store.make_bucket(BUCKET)}/artifacts"
        # MLflow starts slowly, so the others start at the same time.
        server = mlflow_server(root / "mlflow", artifacts, made.store.variables, wait=False)
        made.registry = stack.enter_context(server)
        dev, prod = plans()
        made.dev = stack.enter_context(local_environment(LocalEnvironment(root / DEV, dev, made.keys)))
        made.prod = stack.enter_context(local_environment(LocalEnvironment(root / PROD, prod, made.keys)))
        made.environments = environments_file(root, (made.dev, made.prod))
        made.registry.wait_until_ready()
        yield made
        made.registry.process.popen.terminate()  # It stops slowly, so the others stop at the same time.
