import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

from lab.local_plane.triton import Triton, triton

from ..http.running_proxy import KEY, model, request, running_proxy, until
from ..rigs.pytest_rigs import not_run
from ..rigs.repository import MODELS, write

pytestmark = pytest.mark.anyio
BODY = json.dumps({"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [7]}]}).encode()


@pytest.mark.parametrize(("alias", "status", "version"), [(None, 200, 2), ("champion", 200, 1), ("absent", 503, None)])
async def test_the_version_of_the_alias_answers_and_not_the_newest(
    real_triton: Triton, tmp_path: Path, alias: str | None, status: int, version: int | None
) -> None:
    async with running_proxy(tmp_path, real_triton.http_port, models=[model("versions", alias=alias)]) as here:
        reply = await here.ask(request("/v2/models/versions/infer", BODY))
        assert reply.status == status
        if version is not None:
            outputs = {each["name"]: each["data"] for each in reply.json()["outputs"]}
            assert outputs == {"OUTPUT": [7], "VERSION": [version]}
            assert reply.headers.get("tidegate-model-version") == (str(version) if alias else None)


MODEL = "accumulate"
STEPS = 6


@pytest.fixture(scope="module")
def another_triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    models = [each for each in MODELS if each.name == MODEL]
    folder = tmp_path_factory.mktemp("another")
    with not_run("ANOTHER REAL TRITON"), triton(folder, write(folder / "models", models)) as server:
        yield server


def counted(server: Triton) -> int:
    import tritonclient.http as client

    with client.InferenceServerClient(server.http) as each:
        return int(each.get_inference_statistics(MODEL)["model_stats"][0]["inference_count"])


@pytest.mark.parametrize(
    ("text", "binary", "compression"), [(True, False, "gzip"), (False, True, None), (True, True, "deflate")]
)
async def test_every_sequence_stays_at_its_first_replica(
    real_triton: Triton, another_triton: Triton, tmp_path: Path, text: bool, binary: bool, compression: str | None
) -> None:
    import tritonclient.http as client
    import tritonclient.http.aio

    before = [counted(server) for server in (real_triton, another_triton)]
    async with running_proxy(tmp_path, real_triton.http_port, another_triton.http_port, models=[MODEL]) as here:
        where = f"127.0.0.1:{here.proxy.ports['http']}"
        async with tritonclient.http.aio.InferenceServerClient(where) as each:

            async def sequence(number: int) -> list[int]:
                sums = []
                for step in range(STEPS):
                    given = client.InferInput("INPUT", [1, 1], "INT32")
                    given.set_data_from_numpy(numpy.array([[number]], numpy.int32), binary_data=binary)
                    result = await each.infer(
                        MODEL,
                        [given],
                        sequence_id=f"s-{number}" if text else number,
                        sequence_start=step == 0,
                        sequence_end=step == STEPS - 1,
                        headers={"X-API-Key": KEY},
                        request_compression_algorithm=compression,
                    )
                    sums.append(int(result.as_numpy("OUTPUT")[0][0]))
                return sums

            numbers = range(1, 33)  # all of them randomly at one of the two: once in a billion runs
            found = await asyncio.gather(*(sequence(number) for number in numbers))
    assert found == [[number * step for step in range(1, STEPS + 1)] for number in numbers]

    def work() -> list[int]:
        return [counted(server) - had for server, had in zip((real_triton, another_triton), before, strict=True)]

    await until(lambda: sum(work()) == STEPS * len(numbers))  # Triton counts a call after its response
    assert all(done and done % STEPS == 0 for done in work())
