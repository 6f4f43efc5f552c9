"""What a real Triton cannot load, or answers with an error: known, told in few words, and of no harm to other calls."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidegate_contracts import routing
from tidegate_contracts.proxy_process import METRICS_PATH, SERVER_READY_PATH
from tidegate_contracts.whereabouts import WHEREABOUTS_PATH, Place, Whereabouts
from tidegate_proxy.upstream import load_watch

from lab.local_plane.repository import Model
from lab.local_plane.triton import Triton, triton

from ..docs.test_docs_health import ASKED, CELLS, COULD_NOT_LOAD, Plane
from ..http.running_proxy import RunningProxy, request, routing_table, running_proxy, until
from ..rigs.pytest_rigs import not_run
from ..rigs.repository import SOURCES, write
from ..upstream.test_upstream_health_check import admin

pytestmark = pytest.mark.anyio
TENSORS = [("INPUT", "TYPE_INT32", "1")], [("OUTPUT", "TYPE_INT32", "1")]
ECHO = Model("echo", SOURCES / "echo.py", *TENSORS, "version_policy { all { } }\n")
BODY = json.dumps({"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [7]}]}).encode()
POLLING = (
    "--model-control-mode=poll", "--repository-poll-secs=1", "--exit-on-error=false",
    "--strict-readiness=false",  # `triton` waits until it is ready, whatever it cannot load
)  # fmt: skip
NAMES = ("echo", "no_backend", "no_module")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write(tmp_path_factory.mktemp("volume") / "models", [ECHO])
    for name, backend in (("no_backend", "onnxruntime"), ("no_module", "python")):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1" / "model.py").write_text("import no_such_module\n")
        config = f'name: "{name}"\nbackend: "{backend}"\nmax_batch_size: 0\n'
        tensors = "".join(
            f'{side} {{ name: "{said[0]}" data_type: {said[1]} dims: [ {said[2]} ] }}\n'
            for side, (said,) in zip(("input", "output"), TENSORS, strict=True)
        )
        (folder / name / "config.pbtxt").write_text(config + tensors + "instance_group { kind: KIND_CPU }\n")
    return folder


@pytest.fixture(scope="module")
def polling(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    with not_run("A REAL TRITON"), triton(tmp_path_factory.mktemp("polling"), repository, options=POLLING) as server:
        yield server


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_watch, "LOOK_SECONDS", 0.3)


def models() -> list[routing.Model]:
    return [routing.Model(name=name, server="vision", pool="main") for name in NAMES]


async def told(here: RunningProxy, model: str) -> Place:
    reply = await here.ask(request(f"{WHEREABOUTS_PATH}/{model}", method="GET"))
    [one] = Whereabouts.model_validate_json(reply.body).models
    assert one.pool == "main"
    return one.places[0]


async def test_what_lies_broken_on_the_volume_is_a_state_a_metric_and_a_line_in_the_log_and_calls_go_on(
    polling: Triton, repository: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, load_watch.__name__)
    async with running_proxy(tmp_path, polling.http_port, models=models()) as here:
        [watch] = here.pool.watches.values()
        await until(lambda: {name for name, _ in watch.failed} == {"no_backend", "no_module"})
        library = "unable to find backend library for backend 'onnxruntime'"
        for name, why in (("no_backend", library), ("no_module", "no_such_module")):
            place = await told(here, name)
            assert place.state == "failed"
            assert why in place.why
            assert [each.version for each in place.failures] == [1]
            [line] = [vars(each)["said"] for each in caplog.records if vars(each).get("said", {}).get("model") == name]
            assert why in line["why"]
            for text in (place.why, line["why"]):
                assert "/" not in text.replace("application/", "")
                assert "Traceback" not in text
            _, lines = await admin(here, METRICS_PATH)
            named = [each for each in lines if f'model="{name}"' in each]
            assert any(each.startswith("tidegate_proxy_load_failed_timestamp_seconds{") for each in named)
            assert (await here.ask(request(f"/v2/models/{name}/ready", method="GET"))).status == 400
        status, [first, *more] = await admin(here, f"{SERVER_READY_PATH}/vision")
        assert (status, first, len(more)) == (200, "ready", 2)
        assert (await here.ask(request("/v2/models/echo/infer", BODY))).json()["outputs"][0]["data"] == [7]
        # A version that breaks on a volume that is served from.
        (repository / "echo" / "2").mkdir()
        (repository / "echo" / "2" / "model.py").write_text("import no_such_module\n")
        await until(lambda: ("echo", "2") in watch.failed, 30)
        place = await told(here, "echo")
        assert (place.state, [each.version for each in place.failures]) == ("resident", [2])
        assert (await here.ask(request("/v2/models/echo/versions/1/infer", BODY))).status == 200


async def test_what_could_not_be_loaded_is_answered_as_the_table_of_probes_says(
    polling: Triton, tmp_path: Path
) -> None:
    table = routing_table(models())
    [vision] = table.servers
    pools = (vision.pools[0].model_copy(update={"grpc_port": polling.grpc_port}),)
    table = table.model_copy(update={"servers": (vision.model_copy(update={"pools": pools}),)})
    async with running_proxy(tmp_path, polling.http_port, table=table, kind=Plane) as here:
        assert isinstance(here, Plane)
        here.model = "no_module"
        assert {asked: await ask(here) for asked, ask in ASKED.items()} == CELLS[COULD_NOT_LOAD]
