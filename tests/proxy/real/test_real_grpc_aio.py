"""Triton's gRPC client for asyncio: the same table as for the other one (see grpc/test_grpc_real_triton.py)."""

import asyncio
import inspect
from typing import Any

import pytest
import tritonclient.grpc.aio as aio_client
from tritonclient.utils import InferenceServerException

from ..grpc.test_grpc_real_triton import CALLS, Headers, plain
from ..rigs.pytest_rigs import Front


@pytest.mark.parametrize("name", CALLS)
def test_every_call_has_the_same_answer(front: Front, name: str) -> None:
    async def ask(where: str, headers: Headers) -> Any:
        aio: Any = aio_client
        async with aio.InferenceServerClient(where) as each:
            try:
                found = CALLS[name](each, headers)
                return plain(await found if inspect.isawaitable(found) else found)
            except InferenceServerException as error:
                return "error", str(error.status()), error.message()

    direct, through = asyncio.run(ask(front.triton.grpc, {})), asyncio.run(ask(front.proxy.grpc, front.credential))
    assert through == direct
