"""The rigs as fixtures. A part that this machine cannot have is said by name, and its tests are left out."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from lab.local_plane.process import CannotBeHadError
from lab.local_plane.proxy import Proxy
from lab.local_plane.triton import Triton, triton

from .issuer import Issuer, issuer
from .repository import MODELS, write
from .tables import CALLER, GROUP, keyed_proxy, routing_table


@contextmanager
def not_run(what: str) -> Iterator[None]:
    """Leave a test out, loudly, where a part of it cannot be had; `what` says which in words."""
    try:
        yield
    except CannotBeHadError as error:
        pytest.skip(f"NOT RUN: {what} CANNOT BE HAD HERE ({error}), so that nothing was tried with it.")


@pytest.fixture(scope="session")
def real_triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    """One Triton with every model of the repository, which the tests of a process share."""
    folder = tmp_path_factory.mktemp("triton")
    with not_run("A REAL TRITON"), triton(folder, write(folder / "models")) as server:
        yield server


@pytest.fixture
def identity_provider() -> Iterator[Issuer]:
    with issuer() as provider:
        yield provider


@dataclass(frozen=True)
class Front:
    """A proxy in front of a real Triton, and a caller who may do all."""

    triton: Triton
    proxy: Proxy
    token: str
    key: str  # An API key of the same caller.

    @property
    def credential(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}


@pytest.fixture(scope="session")
def front(real_triton: Triton, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """One proxy process in front of the real Triton, with all its models, which the tests of a process share."""
    table = routing_table(real_triton.http_port, real_triton.grpc_port, [model.name for model in MODELS])
    with issuer() as provider, keyed_proxy(tmp_path_factory.mktemp("front"), table, [provider]) as (running, key):
        yield Front(real_triton, running, provider.token(CALLER, [GROUP]), key)
