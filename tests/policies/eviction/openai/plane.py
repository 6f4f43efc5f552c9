"""The engine's container on an address of its own: the real program, stand-ins for vLLM, and the policy beside them."""

import asyncio
import json
import os
import random
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate_contracts import eviction_process
from tidegate_contracts.eviction import EvictionSettings, ManagedModel, Sleep
from tidegate_contracts.openai import HTTP_PORT
from tidegate_eviction.kinds import KINDS
from tidegate_eviction.openai.control import EngineControl
from tidegate_eviction.openai.driver import SleepDriver
from tidegate_eviction.server import Connection
from tidegate_eviction.serving.files import kept_secret

from lab.local_plane.credentials import write_cluster
from lab.local_plane.policy import write_settings
from lab.local_plane.process import Process, python_variables, running

from ..rigs.driving import Heard, followed

MIB = 1 << 20
DEVICE, FOOTPRINT, WEIGHTS, KEPT = 480 * MIB, 240 * MIB, 160 * MIB, 24 * MIB
"""Of the device, of a model awake, and of its parts. Python takes some 40 MiB beside what a sleeper keeps."""


def own_host() -> str:
    """Return an address of loopback that no other test has: ports of the processes are the same everywhere."""
    return f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"


@dataclass(frozen=True)
class Container:
    """The engine's container, its files in a folder."""

    folder: Path
    host: str

    @property
    def address(self) -> str:
        return f"{self.host}:{HTTP_PORT}"

    @property
    def control(self) -> Path:
        return self.folder / "control"

    @property
    def secret(self) -> str:
        return kept_secret(self.control / "secret")

    def add(self, name: str, weights: int = WEIGHTS, kept: int = KEPT, **faults: str) -> None:
        """Have a model: its folder of weights, and what the stand-in is to do."""
        models = self.folder / "models" / name
        models.mkdir(parents=True, exist_ok=True)
        with (models / "model.safetensors").open("wb") as file:
            file.truncate(weights)
        self.fault(name, weights=weights, kept=kept, **faults)

    def fault(self, name: str, **said: Any) -> None:
        """Change what a stand-in is to do."""
        file = self.folder / f"{name}.json"
        before = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(before | said))

    def calls(self, name: str) -> list[str]:
        """Return what a stand-in was told, and what went wrong."""
        file = self.folder / f"{name}.calls"
        return file.read_text().splitlines() if file.exists() else []

    def model(self, name: str, footprint: int = FOOTPRINT, **more: Any) -> ManagedModel:
        weights, served = str(self.folder / "models" / name), f"--served-model-name={name}"
        command = (sys.executable, "-m", "tests.policies.eviction.openai.vllm", "serve", weights, served)
        return ManagedModel(name=name, footprint_bytes=footprint, command=command, **more)

    def settings(self, *names: str, host_memory: int = 10**9, **more: Any) -> EvictionSettings:
        said: dict[str, Any] = {
            "kind": "openai", "policy": "lru-idle", "repository": str(self.folder / "models"),
            "capacity_bytes": DEVICE * 9 // 10, "idle_seconds": 0, "lease_seconds": 2, "wait_seconds": 10,
            "models": tuple(self.model(name) for name in names),
            "sleep": Sleep(host_memory_bytes=host_memory, kept_bytes=96 * MIB, start_seconds=30),
        }  # fmt: skip
        return EvictionSettings(**(said | more))

    @contextmanager
    def running(self) -> Iterator[Process]:
        """Run the program that starts processes, as the container does, once the policy has written it."""
        variables = os.environ | python_variables("contracts") | {"VLLM_STAND_IN": str(self.folder)}
        command: list[str | Path] = [sys.executable, self.control / "tidegate_engines.py"]
        command += [self.host, str(HTTP_PORT), "1"]
        with running("the engine's container", command, self.folder / "engines.log", variables) as process:
            process.announced_ports()
            yield process

    @contextmanager
    def policy(self, settings: EvictionSettings, lease_port: int = 0) -> Iterator[tuple[Process, int]]:
        """Run the eviction policy itself, as its container does; yield it and the port of its leases."""
        write_settings(self.folder, settings)
        variables = os.environ | python_variables("policies/eviction", "contracts", "service")
        command: list[str | Path] = [sys.executable, "-m", eviction_process.MODULE, "serve", "--host", self.host]
        command += ["--settings", self.folder / eviction_process.SETTINGS_FILE, "--control", self.control]
        command += ["--state", self.folder / "state", "--server", self.address]
        command += ["--lease-port", str(lease_port), "--admin-port", "0"]
        command += ["--cluster", write_cluster(self.folder / "cluster")]
        with running("the eviction policy", command, self.folder / "policy.log", variables) as process:
            yield process, process.announced_ports()["lease"]


def container(folder: Path, *names: str, device: int = DEVICE) -> Container:
    made = Container(folder, own_host())
    made.control.mkdir(parents=True)
    (folder / "device.json").write_text(json.dumps({"bytes": device}))
    for name in names:
        made.add(name)
    return made


@dataclass(frozen=True)
class Driving:
    """A driver, and all that it reports."""

    driver: SleepDriver
    heard: Heard
    container: Container
    control: EngineControl
    process: Process

    async def said(self) -> Any:
        return await self.heard.said.get()

    async def until(self, true: Callable[[], object]) -> None:
        while not true():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def following(here: Container, settings: EvictionSettings) -> AsyncIterator[tuple[SleepDriver, Heard]]:
    """Run a driver for the settings, and have it hear nothing yet."""
    kind, heard = KINDS["openai"], Heard()
    connection = Connection(here.secret, here.control / "recycle", address=here.address)
    repository = kind.repository(settings.repository)
    driver = kind.driver(connection, lambda: repository, heard, lambda: settings)
    assert isinstance(driver, SleepDriver)
    async with followed(driver):
        yield driver, heard


@asynccontextmanager
async def driving(here: Container, settings: EvictionSettings) -> AsyncIterator[Driving]:
    """Run a driver beside the container, which has heard what runs there."""
    async with asyncio.timeout(60), following(here, settings) as (driver, heard):
        with here.running() as process:
            assert (await heard.said.get())[0] == "back"
            yield Driving(driver, heard, here, EngineControl(here.address, here.secret), process)
