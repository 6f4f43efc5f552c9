"""A real Triton that polls a repository, and a client that calls it all the time."""

import json
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

from lab.local_plane.triton import Triton, triton

from .entries import entry, publish

CANARY = "canary"
SECONDS = 60.0
OPTIONS = ("--model-control-mode=poll", "--repository-poll-secs=1", "--exit-on-error=false")
Answer = tuple[int, int, int]
"""Version, release, and when (nanoseconds) it was loaded."""


@dataclass(frozen=True)
class Polling:
    """One that runs."""

    server: Triton
    root: Path
    staging: Path

    @property
    def log(self) -> str:
        """All that it has said."""
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

    def ask(self, model: str, version: int | None = None) -> Answer:
        """Call a model; raises OSError when that is refused."""
        body = {"inputs": [{"name": "INPUT", "shape": [1], "datatype": "FP32", "data": [1]}]}
        first, second, third = self.post(f"{self._model(model, version)}/infer", body)["outputs"][0]["data"]
        return first, second, third

    def label(self, model: str, version: int) -> str:
        """Call a model for the class of its answer, and return the label of that."""
        body = {
            "inputs": [{"name": "INPUT", "shape": [1], "datatype": "FP32", "data": [1]}],
            "outputs": [{"name": "OUTPUT", "parameters": {"classification": 1}}],
        }
        said: str = self.post(f"{self._model(model, version)}/infer", body)["outputs"][0]["data"][0]
        return said.split(":")[2]

    def config(self, model: str) -> dict[str, Any]:
        """Return the configuration that it has."""
        said: dict[str, Any] = self.post(f"{self._model(model)}/config")
        return said

    def states(self, model: str) -> dict[int, str]:
        """Return the state of each version that it knows."""
        index: Any = self.post("/v2/repository/index", {})
        return {
            int(each["version"]): each.get("state", "") for each in index if each["name"] == model and "state" in each
        }

    def ready(self) -> bool:
        """Tell whether the whole server is."""
        try:
            self.post("/v2/health/ready")
        except OSError:
            return False
        return True

    def post(self, path: str, body: Any = None) -> Any:
        """Return what it answers; GET without a body."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.server.http}{path}", data)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or b"null")

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

    @staticmethod
    def _model(model: str, version: int | None = None) -> str:
        return f"/v2/models/{model}" + (f"/versions/{version}" if version else "")


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
            except urllib.error.HTTPError as error:
                self.refused.append(f"{time.monotonic():.3f} {error.code} {error.read()!r}")
            except OSError as error:
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
    with triton(folder / "triton", root, options=OPTIONS) as server:
        yield Polling(server, root, staging)
