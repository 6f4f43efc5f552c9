"""A real Triton hands out what the publisher of a model has written about its aliases."""

import json
from pathlib import Path

import pytest
from tidegate_contracts import routing

from lab.local_plane.triton import Triton

from ..http.house import house, request

pytestmark = pytest.mark.anyio
BODY = json.dumps({"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [7]}]}).encode()


@pytest.mark.parametrize(("alias", "status", "version"), [(None, 200, 2), ("champion", 200, 1), ("nobody", 503, None)])
async def test_the_version_of_the_alias_answers_and_not_the_newest(
    real_triton: Triton, tmp_path: Path, alias: str | None, status: int, version: int | None
) -> None:
    models = [routing.Model(name="versions", server="vision", pool="main", alias=alias)]
    async with house(tmp_path, real_triton.http_port, models=models) as here:
        reply = await here.ask(request("/v2/models/versions/infer", BODY))
        assert reply.status == status
        if version is not None:
            told = {each["name"]: each["data"] for each in reply.json()["outputs"]}
            assert told == {"OUTPUT": [7], "VERSION": [version]}
            assert reply.headers.get("tidegate-model-version") == (str(version) if alias else None)
