import json
import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tidegate.triton.publishing.config import closed_config
from tidegate_contracts.proxy_process import METRICS_PATH, SERVER_READY_PATH
from tidegate_contracts.whereabouts import WHEREABOUTS_PATH, Place, Whereabouts
from tidegate_proxy.pools import ask
from tidegate_proxy.upstream import load_watch

from lab.local_plane.repository import Model
from lab.local_plane.triton import Triton, triton

from ..docs.test_docs_health import CELLS, COULD_NOT_LOAD, PROBES, Plane
from ..http.running_proxy import KEY, RIG, RunningProxy, model, request, routing_table, running_proxy, until
from ..rigs.pytest_rigs import not_run
from ..rigs.repository import SOURCES, write

pytestmark = pytest.mark.anyio
TENSORS = [("INPUT", "TYPE_INT32", "1")], [("OUTPUT", "TYPE_INT32", "1")]
ECHO = Model("echo", SOURCES / "echo.py", *TENSORS, "version_policy { all { } }\n")
RAISES = Model("raises", SOURCES / "raises.py", *TENSORS)
DECOUPLED = Model("decoupled", SOURCES / "raises.py", *TENSORS, "model_transaction_policy { decoupled: true }\n")
BODY = json.dumps({"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [7]}]}).encode()
POLLING = (
    "--model-control-mode=poll", "--repository-poll-secs=1", "--exit-on-error=false",
    "--strict-readiness=false",  # models fail to load, but `triton` waits for readiness
)  # fmt: skip
LOADED = "successfully loaded 'echo'"  # Triton logs it at the end of each poll with a change.
ANSWERS = (
    b"/v2/models/echo",
    b"/v2/models/echo/config",
    b"/v2/models/echo/versions/2/config",
    b"/v2/models/echo/versions/2/ready",
    b"/v2/models/stats",
)
NAMES = ("echo", "raises", "decoupled", "no_backend", "no_module")
OFTEN = replace(RIG, index_seconds=0.3)
SOON = replace(OFTEN, unexplained_seconds=2.0)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write(tmp_path_factory.mktemp("volume") / "models", [ECHO, RAISES, DECOUPLED])
    for name, backend in (("no_backend", "onnxruntime"), ("no_module", "python")):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1" / "model.py").write_text("import no_such_module\n")
        config = f'name: "{name}"\nbackend: "{backend}"\nmax_batch_size: 0\n'
        tensors = "".join(
            f'{side} {{ name: "{tensor[0]}" data_type: {tensor[1]} dims: [ {tensor[2]} ] }}\n'
            for side, (tensor,) in zip(("input", "output"), TENSORS, strict=True)
        )
        (folder / name / "config.pbtxt").write_text(config + tensors + "instance_group { kind: KIND_CPU }\n")
    return folder


@pytest.fixture(scope="module")
def polling(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    with not_run("A REAL TRITON"), triton(tmp_path_factory.mktemp("polling"), repository, options=POLLING) as server:
        yield server


async def listed(here: RunningProxy, name: str) -> Place:
    reply = await here.ask(request(f"{WHEREABOUTS_PATH}/{name}", method="GET"))
    [one] = Whereabouts.model_validate_json(reply.body).models
    assert one.pool == "main"
    return one.places[0]


async def test_broken_models_have_a_state_a_metric_and_a_log_line_and_calls_continue(
    polling: Triton, repository: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, load_watch.__name__)
    async with running_proxy(tmp_path, polling.http_port, models=NAMES, tunables=OFTEN) as here:
        [watch] = here.pool.watches.values()
        await until(lambda: {name for name, _ in watch.failed} == {"no_backend", "no_module"})
        library = "unable to find backend library for backend 'onnxruntime'"
        for name, why in (("no_backend", library), ("no_module", "no_such_module")):
            place = await listed(here, name)
            assert place.state == "failed"
            assert why in place.why
            assert [each.version for each in place.failures] == [1]
            [line] = [vars(each)["data"] for each in caplog.records if vars(each).get("data", {}).get("model") == name]
            assert why in line["why"]
            for text in (place.why, line["why"]):
                assert "/" not in text.replace("application/", "")
                assert "Traceback" not in text
            _, lines = await here.admin(METRICS_PATH)
            named = [each for each in lines if f'model="{name}"' in each]
            assert any(each.startswith("tidegate_proxy_load_failed_timestamp_seconds{") for each in named)
            assert (await here.ask(request(f"/v2/models/{name}/ready", method="GET"))).status == 400
        status, [first, *more] = await here.admin(f"{SERVER_READY_PATH}/vision")
        assert (status, first, len(more)) == (200, "ready", 2)
        assert (await here.ask(request("/v2/models/echo/infer", BODY))).json()["outputs"][0]["data"] == [7]
        # A new version that fails to load while the model is in use.
        (repository / "echo" / "2").mkdir()
        (repository / "echo" / "2" / "model.py").write_text("import no_such_module\n")
        await until(lambda: ("echo", "2") in watch.failed, 30)
        place = await listed(here, "echo")
        assert (place.state, [each.version for each in place.failures]) == ("resident", [2])
        assert (await here.ask(request("/v2/models/echo/versions/1/infer", BODY))).status == 200
        # Triton reports the same after it has polled without that version, so a newer version must end the failure.
        log = polling.process.log
        answers, polls = [await ask(here.pool, path, 5.0) for path in ANSWERS], log.read_text().count(LOADED)
        shutil.rmtree(repository / "echo" / "2")
        await until(lambda: log.read_text().count(LOADED) > polls, 30)
        await watch.look()
        assert [await ask(here.pool, path, 5.0) for path in ANSWERS] == answers
        assert ("echo", "2") in watch.failed
        shutil.copytree(repository / "echo" / "1", tmp_path / "3")
        (tmp_path / "3").rename(repository / "echo" / "3")
        await until(lambda: ("echo", "2") not in watch.failed, 30)


async def test_models_that_failed_to_load_get_the_documented_probe_responses(polling: Triton, tmp_path: Path) -> None:
    table = routing_table(NAMES, grpc_port=polling.grpc_port)
    async with running_proxy(tmp_path, polling.http_port, table=table, kind=Plane, tunables=OFTEN) as here:
        assert isinstance(here, Plane)
        here.model = "no_module"
        assert {probe: await ask(here) for probe, ask in PROBES.items()} == CELLS[COULD_NOT_LOAD]


async def test_a_configuration_that_breaks_under_a_loaded_model_is_reported_if_calls_name_a_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, load_watch.__name__)
    folder = write(tmp_path / "volume" / "models", [ECHO]) / "echo"
    table = [model("echo", {1: 90, 2: 10})]
    good = (folder / "config.pbtxt").read_text()
    with not_run("A REAL TRITON"), triton(tmp_path / "triton", folder.parent, options=POLLING) as server:
        (tmp_path / "broken").write_text("this is none {")
        (tmp_path / "broken").replace(folder / "config.pbtxt")  # atomically: half of the file would be valid
        shutil.copytree(folder / "1", folder / "2")
        async with running_proxy(tmp_path, server.http_port, models=table, tunables=SOON) as here:
            [watch] = here.pool.watches.values()
            await until(lambda: watch.failed, 30)
            assert {key: each.why for key, each in watch.failed.items()} == {("echo", "2"): load_watch.NO_REASON}
            place = await listed(here, "echo")
            assert (place.state, place.versions, [each.version for each in place.failures]) == ("resident", (1,), [2])
            [line] = [each for each in caplog.records if each.levelno == logging.WARNING]
            assert vars(line)["data"]["version"] == "2"
            _, lines = await here.admin(METRICS_PATH)
            assert any(each.startswith("tidegate_proxy_load_failures{") and each.endswith(" 1.0") for each in lines)
            assert (await here.ask(request("/v2/models/echo/versions/1/infer", BODY))).status == 200
            (tmp_path / "good").write_text(good)
            (tmp_path / "good").replace(folder / "config.pbtxt")
            await until(lambda: not watch.failed, 30)
            assert (await listed(here, "echo")).versions == (1, 2)


async def test_removed_models_and_unrouted_models_are_not_failures_when_triton_restarts(tmp_path: Path) -> None:
    models = [replace(ECHO, name=name) for name in ("echo", "raises", "no_module", "unnamed")]
    folder = write(tmp_path / "volume" / "models", models)
    (folder / "lost+found").mkdir()
    (folder / "unnamed" / "1" / "model.py").write_text("import no_such_module\n")
    (folder / "no_module" / "config.pbtxt").write_text("this is none {")
    closed = folder / "raises" / "config.pbtxt"
    closed.write_text(closed_config(closed.read_text()))
    with not_run("A REAL TRITON"), triton(tmp_path / "triton", folder, options=POLLING) as server:
        async with running_proxy(tmp_path, server.http_port, models=NAMES, tunables=SOON) as here:
            [watch] = here.pool.watches.values()
            await until(lambda: watch.failed, 30)
            assert watch._unexplained.keys() == watch.failed.keys(), "no other one fails later"
            assert {key: each.why for key, each in watch.failed.items()} == {("no_module", ""): load_watch.NO_REASON}
            assert ([*watch.loaded], (await listed(here, "raises")).state) == (["echo"], "unknown")


async def test_a_models_exception_arrives_as_triton_reports_it_over_http_predict_streams_and_grpc(
    polling: Triton, tmp_path: Path
) -> None:
    import grpc
    from tritonclient.grpc import service_pb2 as pb
    from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

    table = routing_table(NAMES, grpc_port=polling.grpc_port)
    message = pb.ModelInferRequest(model_name="raises")
    message.inputs.add(name="INPUT", datatype="INT32").shape.append(1)
    message.raw_input_contents.append((7).to_bytes(4, "little"))

    async def failed(port: int) -> tuple[object, str | None]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await GRPCInferenceServiceStub(channel).ModelInfer(message, metadata=(("x-api-key", KEY),), timeout=20)
        return error.value.code(), error.value.details()

    async with running_proxy(tmp_path, polling.http_port, table=table) as here:
        envelope = {"inference_server_name": "vision", "model_name": "raises", "payload": json.loads(BODY)}
        for data in (request("/v2/models/raises/infer", BODY), request("/predict", json.dumps(envelope).encode())):
            reply = await here.ask(data)
            assert reply.status >= 400
            assert "model.py is wrong" in reply.json()["error"]
        reply = await here.ask(request("/v2/models/decoupled/generate_stream", b'{"INPUT": 7}'))
        events = [json.loads(line[5:]) for line in reply.body.decode().splitlines() if line.startswith("data:")]
        assert events[0]["OUTPUT"] == 7
        assert "model.py is wrong" in events[1]["error"]
        [count] = [each for key, each in here.proxy.shared.meter.calls.items() if "decoupled" in key]
        assert dict(count.statuses) == {502: 1}
        code, text = await failed(here.proxy.ports["grpc"])
        assert (code, text) == await failed(polling.grpc_port)
        assert "model.py is wrong" in (text or "")
