import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.grpc.model_config_pb2 import ModelConfig
from tritonclient.utils import InferenceServerException

from lab.local_plane.triton import Triton, triton

from .entries import entry, publish

CANARY = "canary"
SECONDS = 60.0
OPTIONS = ("--model-control-mode=poll", "--repository-poll-secs=1", "--exit-on-error=false")
Answer = tuple[int, int, int]  # version, release, and when (nanoseconds) it was loaded


@dataclass(frozen=True)
class Polling:
    server: Triton
    client: InferenceServerClient
    root: Path
    staging: Path

    @property
    def log(self) -> str:
        return self.server.process.log.read_text("utf-8", errors="replace")

    def settle(self) -> None:
        """Wait until Triton has seen the current repository and finished the loads. Triton loads all changes before
        the next poll. So after two successive changes of one model were seen, all before the first are done."""
        for _ in range(2):
            before = self._polls()
            config = self.root / CANARY / "config.pbtxt"
            # A new file of the same name with the same content.
            shutil.copyfile(config, self.staging / "canary")
            (self.staging / "canary").rename(config)
            self.server.process.wait_until(partial(self._has_polled, before), SECONDS)

    def _polls(self) -> int:
        return self.log.count(f'loading: {CANARY}:1"')

    def _has_polled(self, before: int) -> bool:
        return self._polls() > before

    def ask(self, model: str, version: int | str = "") -> Answer:
        """Call a model. Raises InferenceServerException if the call is refused."""
        first, second, third = self._infer(model, version).tolist()
        return first, second, third

    def config(self, model: str) -> ModelConfig:
        return self.client.get_model_config(model).config

    def states(self, model: str) -> dict[int, str]:
        index = self.client.get_model_repository_index().models
        return {int(each.version): each.state for each in index if each.name == model and each.state}

    def _infer(self, model: str, version: int | str) -> Any:
        given = InferInput("INPUT", [1], "FP32")
        given.set_data_from_numpy(numpy.ones(1, numpy.float32))
        wanted = InferRequestedOutput("OUTPUT")
        return self.client.infer(model, [given], str(version), [wanted], client_timeout=10).as_numpy("OUTPUT")

    @contextmanager
    def called(self, model: str, *versions: int) -> Iterator[list["Caller"]]:
        """Call each of these versions all the time, each with a separate client."""
        callers = [Caller(self, model, version) for version in versions]
        for caller in callers:
            caller.thread.start()
        try:
            yield callers
        finally:
            for caller in callers:
                caller.over.set()
                caller.thread.join()


@dataclass
class Caller:
    polling: Polling
    model: str
    version: int
    answers: dict[Answer, int] = field(default_factory=dict)
    """The responses and their numbers, in the order of their first occurrence."""
    refused: list[str] = field(default_factory=list)
    over: Event = field(default_factory=Event)
    thread: Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = Thread(target=self._call, daemon=True)

    def _call(self) -> None:
        while not self.over.is_set():
            try:
                answer = self.polling.ask(self.model, self.version)
                self.answers[answer] = self.answers.get(answer, 0) + 1
            except InferenceServerException as error:
                self.refused.append(f"{time.monotonic():.3f} {error}")
            time.sleep(0.01)  # leaves CPU time for the others

    def calm(self) -> bool:
        return len(self.answers) == 1 and not self.refused


@contextmanager
def polling(folder: Path) -> Iterator[Polling]:
    """Run a Triton on a new repository, with a model that shows when Triton has polled."""
    root, staging = folder / "models", folder / "elsewhere"
    root.mkdir(parents=True)
    staging.mkdir()
    publish(root, entry(1, CANARY), 1)
    with triton(folder / "triton", root, options=OPTIONS) as server, InferenceServerClient(server.grpc) as client:
        yield Polling(server, client, root, staging)
