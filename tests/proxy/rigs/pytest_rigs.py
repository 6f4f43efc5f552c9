"""The rigs as fixtures. If this machine lacks a program, its tests are skipped with a message that names it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tidegate_contracts.proxy_settings import variable

from lab.local_plane.process import CannotBeHadError
from lab.local_plane.proxy import Proxy
from lab.local_plane.triton import Triton, triton

from . import peers
from .issuer import Issuer, issuer
from .repository import MODELS, write
from .tables import CALLER, GROUP, keyed_proxy, routing_table


@contextmanager
def not_run(what: str) -> Iterator[None]:
    """Skip a test if a program that it needs is unavailable. `what` describes the program."""
    try:
        yield
    except CannotBeHadError as error:
        pytest.skip(f"NOT RUN: {what} CANNOT BE INSTALLED HERE ({error}), so no test used it.")


@pytest.fixture(scope="session")
def real_triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    folder = tmp_path_factory.mktemp("triton")
    with not_run("A REAL TRITON"), triton(folder, write(folder / "models")) as server:
        yield server


@pytest.fixture
def identity_provider() -> Iterator[Issuer]:
    with issuer() as provider:
        yield provider


@dataclass(frozen=True)
class Front:
    triton: Triton
    proxy: Proxy
    token: str
    key: str  # An API key of the same caller.

    @property
    def credential(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}


@contextmanager
def fronted(folder: Path, server: Triton) -> Iterator[Front]:
    table = routing_table(server.http_port, server.grpc_port, [model.name for model in MODELS])
    with issuer() as provider, keyed_proxy(folder, table, [provider]) as (running, key):
        yield Front(server, running, provider.token(CALLER, [GROUP]), key)


@pytest.fixture(scope="session")
def front(real_triton: Triton, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with fronted(tmp_path_factory.mktemp("front"), real_triton) as made:
        yield made


@dataclass(frozen=True)
class Exposed:
    """A proxy behind nginx, with the rules of an Ingress that has a path, in front of a real Triton."""

    triton: Triton
    proxy: Proxy
    address: str  # Host and port of nginx.
    path: str
    key: str


@pytest.fixture(scope="session")
def exposed(real_triton: Triton, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exposed]:
    """Run such a proxy with the path that an environment's objects give to the Ingress and to the proxy."""
    from tests.components.expected import objects  # only here, because every test run loads this plugin

    rendered = {(item["kind"], item["metadata"]["name"]): item for item in objects("prod-all")}
    (rule,) = rendered["Ingress", "inference-proxy"]["spec"]["rules"]
    paths = [each["path"] for each in rule["http"]["paths"]]
    known = rendered["ConfigMap", "inference-proxy-settings"]["data"][variable("path")]
    table = routing_table(real_triton.http_port, real_triton.grpc_port, [model.name for model in MODELS])
    folder = tmp_path_factory.mktemp("exposed")
    with (
        keyed_proxy(folder, table, path=known) as (running, key),
        not_run("A REAL NGINX"),
        peers.ingress(folder / "nginx", paths, running.http_port) as gate,
    ):
        yield Exposed(real_triton, running, gate.http, paths[0], key)
