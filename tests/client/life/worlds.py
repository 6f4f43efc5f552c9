"""Where the tests' models live: dev and prod on this machine, and an MLflow server."""

from dataclasses import dataclass, replace
from pathlib import Path

from tidegate import environments
from tidegate.calling.proxy import ProxyClient
from tidegate.life.context import Context
from tidegate.registry import Registry
from tidegate_contracts.routing import Model

from lab.local_plane import environment as local

VISITOR = "visitor"
BUCKET = "artifacts"


@dataclass
class World:
    """Where the tests' models live."""

    folder: Path
    dev: local.LocalEnvironment
    prod: local.LocalEnvironment

    def context(self, wait_seconds: float = 60) -> Context:
        """Return what an operation works with, by the environment variables as they are."""
        return Context(environments.load(), Registry(), wait_seconds=wait_seconds)

    def client(self, of: local.LocalEnvironment) -> ProxyClient:
        """Return who calls an environment."""
        return ProxyClient(of.url)

    def serve(self, of: local.LocalEnvironment, *models: Model) -> None:
        """Have an environment serve other models, as another definition would."""
        of.serve(replace(of.plan, models=models))
        local.environments_file(self.folder, [self.dev, self.prod])


def model(name: str, server: str = local.PRELOAD, alias: str | None = "champion") -> Model:
    """Return a model as the definition has it, called by an alias if one is said."""
    return Model(name=name, server=server, pool=local.POOL, alias=alias)


MODELS = (model("killed"), model("faulty"), model("soaked", alias=None), model("ocr", local.ON_DEMAND))
