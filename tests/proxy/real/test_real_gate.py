"""A rollout's gate notices models that a real Triton no longer loads, although Triton reports that it is ready."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tidegate_contracts.proxy_process import METRICS_PATH

from lab.local_plane.triton import triton
from rollout.health import Target
from rollout.kubectl import Kubectl
from rollout.waves.gate import HealthCheck, not_loaded
from stacks.definition.rollout import Gate

from ..http.running_proxy import RunningProxy, request, running_proxy, until
from ..rigs.pytest_rigs import not_run
from ..rigs.repository import write
from .test_real_errors import BODY, ECHO, OFTEN, POLLING

pytestmark = pytest.mark.anyio
TARGET = Target("prod", (), 80, False)


class Pods(Kubectl):
    """A stand-in for a cluster with one ready proxy, whose metrics are those of a real one."""

    def find(self, *_: object) -> list[dict[str, Any]]:
        labels = {"app.kubernetes.io/name": "inference-proxy"}
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        return [{"kind": "Pod", "metadata": {"name": "inference-proxy-1", "labels": labels}, "status": ready}]

    def run(self, *_: str, **__: Any) -> Any:
        return SimpleNamespace(stdout=self.__dict__["metrics"])


async def cluster(here: RunningProxy) -> Pods:
    pods = Pods("there")
    _, lines = await here.admin(METRICS_PATH)
    pods.__dict__["metrics"] = "\n".join(lines)
    return pods


async def test_a_ready_triton_that_no_longer_loads_a_model_does_not_pass_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = write(tmp_path / "models", (ECHO,))
    with not_run("A REAL TRITON"), triton(tmp_path / "before", repository, options=POLLING) as server:
        async with running_proxy(tmp_path / "one", server.http_port, models=["echo"], tunables=OFTEN) as here:
            [watch] = here.pool.watches.values()
            await until(lambda: watch.seen)
            assert (await here.ask(request("/v2/models/echo/infer", BODY))).status == 200
            assert not_loaded(await cluster(here), TARGET) == ([], [])
    # The new image cannot load what the old one loaded, like plans of another TensorRT release.
    (repository / "echo" / "1" / "model.py").write_text("import what_only_the_old_image_has\n")
    with not_run("A REAL TRITON"), triton(tmp_path / "after", repository, options=POLLING) as server:
        async with running_proxy(tmp_path / "two", server.http_port, models=["echo"], tunables=OFTEN) as here:
            [watch] = here.pool.watches.values()
            await until(lambda: watch.failed)
            assert (await here.ask(request("/v2/health/ready", method="GET"))).status == 200
            assert (await here.ask(request("/v2/models/echo/infer", BODY))).status >= 400
            monkeypatch.setattr("rollout.health.lacking", lambda *_: [])
            pods = await cluster(here)
            failed = "model echo version 1 of vision/main"
            check = HealthCheck(Gate(), pods, TARGET)
            assert check.lacking() == [f"{failed} cannot be loaded"]
            assert HealthCheck(Gate(), pods, TARGET, frozenset([failed])).lacking() == []
