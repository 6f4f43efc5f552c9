"""A stand-in for `vllm serve` that needs no GPU: its sleep mode as vLLM publishes it, memory really taken, and faults.

It holds to docs/features/sleep_mode.md and vllm/entrypoints/serve/{sleep,rpc,cache}/api_router.py of vllm-project/vllm.
Its weights and its cache are memory of this process, and all stand-ins of a folder share a device of so many bytes: who
finds it full fails as vLLM does, out of memory. What it is to do wrong stands in a file that it reads at each request.
"""

import argparse
import asyncio
import importlib
import inspect
import json
import mmap
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

FOLDER = Path(os.environ["VLLM_STAND_IN"])
TAGS = ("weights", "kv_cache")
TOKEN_SECONDS = 0.02
OUT_OF_MEMORY = "CUDA out of memory."


class Device:
    """The device that all stand-ins share: each says in a file what it takes, and none of them more than there is."""

    def __init__(self, name: str) -> None:
        self._file = FOLDER / f"{name}.used"
        self._memory: dict[str, mmap.mmap] = {}
        self._bytes = json.loads((FOLDER / "device.json").read_text())["bytes"]

    @property
    def held(self) -> set[str]:
        return {*self._memory}

    def take(self, what: str, size: int) -> None:
        if what in self._memory:
            return
        others = sum(int(each.read_text() or 0) for each in FOLDER.glob("*.used") if each != self._file)
        if others + sum(map(len, self._memory.values())) + size > self._bytes:
            raise MemoryError(OUT_OF_MEMORY)
        self._memory[what] = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory[what].write(b"x" * size)
        self._tell()

    def give(self, what: str) -> None:
        if what in self._memory:
            self._memory.pop(what).close()
            self._tell()

    def _tell(self) -> None:
        self._file.write_text(str(sum(map(len, self._memory.values()))))


class Vllm:
    """One model."""

    def __init__(self, name: str, share: float) -> None:
        self.name = name
        self.device = Device(name)
        said = self.said
        total = int(json.loads((FOLDER / "device.json").read_text())["bytes"] * share)
        self.kept, weights = said["kept"], said["weights"]
        self.sizes = {"weights": weights, "kv_cache": max(mmap.PAGESIZE, total - weights - self.kept)}
        self.asleep: set[str] = set()
        self.level = 0
        self.is_reloaded = True
        self.in_flight = 0
        self.device.take("context", self.kept)
        for tag in TAGS:
            self.device.take(tag, self.sizes[tag])

    @property
    def said(self) -> dict[str, Any]:
        """How large it is, and what it is to do wrong."""
        said: dict[str, Any] = json.loads((FOLDER / f"{self.name}.json").read_text())
        return said

    def note(self, what: str) -> None:
        with (FOLDER / f"{self.name}.calls").open("a") as file:
            file.write(f"{what}\n")

    async def misbehave(self, what: str) -> Response | None:
        match self.said.get(what):
            case "hang":
                await asyncio.sleep(3600)
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "500":
                return JSONResponse({"error": f"{what} failed"}, 500)
        return None


def make(vllm: Vllm, is_dev: bool, sleeps: bool) -> Starlette:
    async def health(_: Request) -> Response:
        return await vllm.misbehave("health") or Response(status_code=200)

    async def metrics(_: Request) -> Response:
        await vllm.misbehave("metrics")
        line = f'vllm:num_requests_running{{engine="0",model_name="{vllm.name}"}} {vllm.in_flight}.0'
        return Response(f"# TYPE vllm:num_requests_running gauge\n{line}\npython_info 1.0\n", media_type="text/plain")

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": vllm.name, "object": "model", "owned_by": "vllm"}]})

    async def chat(request: Request) -> Response:
        asked = await request.json()
        if asked["model"] != vllm.name:
            message = f"The model `{asked['model']}` does not exist."
            return JSONResponse({"error": {"message": message, "type": "NotFoundError", "code": 404}}, 404)
        if vllm.asleep or not vllm.is_reloaded:
            vllm.note("called asleep")
            return JSONResponse({"error": {"message": "the engine is dead", "type": "InternalServerError"}}, 500)
        vllm.note("chat")
        tokens = asked.get("max_tokens", 3)

        def part(**more: Any) -> dict[str, Any]:
            return {"id": "chatcmpl-1", "created": int(time.time()), "model": vllm.name} | more

        async def events() -> AsyncIterator[str]:
            vllm.in_flight += 1
            try:
                for number in range(tokens):
                    await asyncio.sleep(TOKEN_SECONDS)
                    if vllm.asleep:
                        vllm.note("asleep in a stream")
                        return
                    choice = {"index": 0, "delta": {"content": f"word{number} "}, "finish_reason": None}
                    yield f"data: {json.dumps(part(object='chat.completion.chunk', choices=[choice]))}\n\n"
                yield "data: [DONE]\n\n"
            finally:
                vllm.in_flight -= 1

        if asked.get("stream"):
            return StreamingResponse(events(), media_type="text/event-stream")
        text = "".join([f"word{number} " for number in range(tokens)])
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}
        return JSONResponse(part(object="chat.completion", choices=[choice], usage=usage))

    async def sleep(request: Request) -> Response:
        level, mode = int(request.query_params.get("level", "1")), request.query_params.get("mode", "abort")
        vllm.note(f"sleep {level} {mode}")
        if wrong := await vllm.misbehave(f"sleep{level}"):
            return wrong
        if not sleeps:
            return JSONResponse({"error": "Sleep mode is not enabled."}, 500)
        if vllm.asleep:
            return Response(status_code=200)  # a tag that sleeps sleeps on
        while mode == "wait" and vllm.in_flight:
            await asyncio.sleep(0.01)
        vllm.asleep, vllm.level, vllm.is_reloaded = {*TAGS}, level, level == 1
        if vllm.said.get(f"sleep{level}") != "keep":
            for tag in TAGS:
                vllm.device.give(tag)
        return Response(status_code=200)

    async def wake_up(request: Request) -> Response:
        tags = request.query_params.getlist("tags") or TAGS
        vllm.note(f"wake {' '.join(tags)}")
        if wrong := await vllm.misbehave("wake"):
            return wrong
        for tag in tags:
            vllm.device.take(tag, vllm.sizes[tag])
            vllm.asleep.discard(tag)
        return Response(status_code=200)

    async def is_sleeping(_: Request) -> Response:
        return await vllm.misbehave("is_sleeping") or JSONResponse({"is_sleeping": bool(vllm.asleep)})

    async def collective_rpc(request: Request) -> Response:
        method = (await request.json())["method"]
        vllm.note(method)
        if wrong := await vllm.misbehave(method):
            return wrong
        if method == "reload_weights" and "weights" not in vllm.asleep:
            vllm.is_reloaded = True
        return JSONResponse({"results": [None]})

    async def reset_prefix_cache(_: Request) -> Response:
        vllm.note("reset_prefix_cache")
        return Response(status_code=200)

    async def full(_: Request, error: Exception) -> Response:
        vllm.note("out of memory")
        return JSONResponse({"error": str(error)}, 500)

    open_to_all = {"/health": health, "/metrics": metrics, "/v1/models": models}
    posted: dict[str, Any] = {"/sleep": sleep, "/wake_up": wake_up, "/collective_rpc": collective_rpc}
    posted["/reset_prefix_cache"] = reset_prefix_cache
    routes = [Route(path, what) for path, what in open_to_all.items()]
    routes.append(Route("/v1/chat/completions", chat, methods=["POST"]))
    if is_dev:
        routes += [Route(path, what, methods=["POST"]) for path, what in posted.items()]
        routes.append(Route("/is_sleeping", is_sleeping))
    return Starlette(routes=routes, exception_handlers={MemoryError: full})


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="vllm")
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.9)
    parser.add_argument("--middleware", action="append", default=[])
    parser.add_argument("--enable-sleep-mode", action="store_true")
    said = parser.parse_args(arguments)
    assert Path(said.model).is_dir()
    model = json.loads((FOLDER / f"{said.served_model_name}.json").read_text())
    time.sleep(model.get("seconds", 0))
    if model.get("start") == "die":
        sys.exit("no kernel image is available for execution on the device")
    vllm = Vllm(said.served_model_name, said.gpu_memory_utilization)
    vllm.note("start")
    app = make(vllm, os.environ.get("VLLM_SERVER_DEV_MODE") == "1", said.enable_sleep_mode)
    for path in said.middleware:
        module, _, name = path.rpartition(".")
        found: Any = getattr(importlib.import_module(module), name)
        assert inspect.isclass(getattr(importlib.import_module(module), name))
        app.add_middleware(found)
    uvicorn.run(app, host=said.host, port=said.port, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main(sys.argv[1:])
