"""The objects of the scenes: the world, a continuous caller of a model, and commands whose output is printed."""

import shlex
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidegate.calling.credentials import find_credential
from tidegate.calling.proxy import ProxyClient
from tidegate.errors import TidegateError

from lab.local_plane.environment import LocalEnvironment
from rollout.tools.running import repeating

from ..playing import claim
from ..show import Show
from . import notebook
from .world import CHURN, DEPLOYER, ENDPOINT, PROD, Result, World

PAUSE_SECONDS = 0.05
SHOWN_LINES = 12


@dataclass
class Calls:
    """Counts of the responses to calls."""

    versions: Counter[str] = field(default_factory=Counter)  # Correct responses of each version.
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0  # Seconds of the slowest call, with its retries.

    @property
    def last(self) -> str:
        """A summary in words."""
        by = ", ".join(f"version {version} {count}" for version, count in sorted(self.versions.items()))
        slowest = f"the slowest took {self.slowest:.2f} s"
        return f"{self.versions.total()} calls ({by}), {len(self.failures)} failed, {slowest}"


@dataclass
class LifeStage:
    """The objects that every scene uses."""

    world: World
    show: Show

    def run(self, who: str, *words: str, expect: int = 0, lines: int = SHOWN_LINES) -> Result:
        """Run a command as a person, and print it with its output. Raises NotSoError on another exit code."""
        self.show.command(who, shlex.join(["tidegate", *words]))
        result = self.world.tidegate(who, *words)
        claim(result.status == expect, f"tidegate {words[0]} ended with {result.status}: {result.err or result.out}")
        text = result.out if result.status == 0 else result.err or result.out
        self.show.output("\n".join(text.rstrip().splitlines()[:lines]))
        return result

    def verified(self) -> None:
        """Compare production with the registry. Only Python's __pycache__ may differ."""
        self.show.command(DEPLOYER, f"tidegate verify {PROD}")
        report = self.world.tidegate(DEPLOYER, "verify", PROD, "--json").json()
        others = [each for each in report["found"] if each["kind"] != "stray" or "__pycache__" not in each["what"]]
        claim(not others, f"production differs from the registry: {others}")
        self.show.output(f"{PROD}: {report['versions']} versions are byte for byte as in the registry")

    def client(self, of: LocalEnvironment) -> ProxyClient:
        """Return a client with the model endpoint's key."""
        return ProxyClient(of.url, find_credential({"TIDEGATE_API_KEY": self.world.keys[ENDPOINT]}))

    @contextmanager
    def calling(self, of: LocalEnvironment, model: str = CHURN) -> Iterator[Calls]:
        """Call a model repeatedly until the block ends. Raises NotSoError if a call failed."""
        calls = Calls()
        with self.client(of) as client, repeating(lambda: _count(calls, client, model), pause=PAUSE_SECONDS):
            yield calls
        claim(not calls.failures, f"{calls.last}: {calls.failures[:1]}")


def call_times(client: ProxyClient, model: str, number: int) -> Calls:
    """Call a model `number` times, and check every response."""
    calls = Calls()
    for _ in range(number):
        _count(calls, client, model)
    return calls


def _count(calls: Calls, client: ProxyClient, model: str) -> None:
    begun = time.monotonic()
    try:
        answer = client.infer(model, notebook.request())
    except TidegateError as error:
        calls.failures.append(str(error))
        return
    finally:
        calls.slowest = max(calls.slowest, time.monotonic() - begun)
    found = float(answer.outputs["SCORE"].reshape(-1)[0])
    version = str(answer.version)
    right = notebook.score(notebook.weights(int(version)))
    if abs(found - right) > 1e-4:
        calls.failures.append(f"version {version} answers {found}, but {right} was expected")
    calls.versions[version] += 1
