"""A real Triton that polls a repository, and a client that calls it all the time."""

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
Answer = tuple[int, int, int]  # Version, release, and when (nanoseconds) it was loaded.


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
        """Wait until it has seen what is in the repository now, and has done what follows from it.

        It looks at all models and then loads what has changed, before it looks again: so once it has seen two changes
        of one model, made one after the other, it has done with all that was there at the first.
        """
        for _ in range(2):
            before = self._looks()
            config = self.root / CANARY / "config.pbtxt"
            # A new one under the same name, as content it is the same.
            shutil.copyfile(config, self.staging / "canary")
            (self.staging / "canary").rename(config)
            self.server.process.wait_until(partial(self._looked, before), SECONDS)

    def _looks(self) -> int:
        return self.log.count(f'loading: {CANARY}:1"')

    def _looked(self, before: int) -> bool:
        return self._looks() > before

    def ask(self, model: str, version: int | str = "") -> Answer:
        """Call a model; raises InferenceServerException when that is refused."""
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
        """Have these versions called all the time, each by a client of its own."""
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
    """A client that calls one version all the time."""

    polling: Polling
    model: str
    version: int
    answers: dict[Answer, int] = field(default_factory=dict)
    """How often each came, in the order in which they came first."""
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
            time.sleep(0.01)  # leaves a processor to the others

    def calm(self) -> bool:
        """Tell whether it has had answers, all from one copy of the model, and none was refused."""
        return len(self.answers) == 1 and not self.refused


@contextmanager
def polling(folder: Path) -> Iterator[Polling]:
    """Run one over a repository of its own, with a model that tells when it has looked."""
    root, staging = folder / "models", folder / "elsewhere"
    root.mkdir(parents=True)
    staging.mkdir()
    publish(root, entry(1, CANARY), 1)
    with triton(folder / "triton", root, options=OPTIONS) as server, InferenceServerClient(server.grpc) as client:
        yield Polling(server, client, root, staging)
