"""Where the scenes play: the world, somebody who calls a model all the time, and commands that everybody sees."""

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
from .world import CHURN, DEPLOYER, ENDPOINT, PROD, Said, World

PAUSE_SECONDS = 0.05
SHOWN_LINES = 12


@dataclass
class Calls:
    """What callers were answered."""

    versions: Counter[str] = field(default_factory=Counter)  # How often each version answered, rightly.
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0  # Seconds, with all tries of a call.

    @property
    def last(self) -> str:
        """In words: how many, and by whom."""
        by = ", ".join(f"version {version} {count}" for version, count in sorted(self.versions.items()))
        slowest = f"the slowest took {self.slowest:.2f} s"
        return f"{self.versions.total()} calls ({by}), {len(self.failures)} failed, {slowest}"


@dataclass
class LifeStage:
    """What every scene has at hand."""

    world: World
    show: Show

    def run(self, who: str, *words: str, expect: int = 0, lines: int = SHOWN_LINES) -> Said:
        """Run a command as somebody, where everybody sees it; it must end as expected."""
        self.show.command(who, shlex.join(["tidegate", *words]))
        said = self.world.tidegate(who, *words)
        claim(said.status == expect, f"tidegate {words[0]} ended with {said.status}: {said.err or said.out}")
        text = said.out if said.status == 0 else said.err or said.out
        self.show.output("\n".join(text.rstrip().splitlines()[:lines]))
        return said

    def verified(self) -> None:
        """Compare production with the registry; nothing may differ but what Python writes beside a model's program."""
        self.show.command(DEPLOYER, f"tidegate verify {PROD}")
        said = self.world.tidegate(DEPLOYER, "verify", PROD, "--json").json()
        others = [each for each in said["found"] if each["kind"] != "stray" or "__pycache__" not in each["what"]]
        claim(not others, f"production is not as the registry says: {others}")
        self.show.output(f"{PROD}: {said['versions']} versions are byte for byte as the registry says")

    def client(self, of: LocalEnvironment) -> ProxyClient:
        """Return a client of the model endpoint's."""
        return ProxyClient(of.url, find_credential({"TIDEGATE_API_KEY": self.world.keys[ENDPOINT]}))

    @contextmanager
    def calling(self, of: LocalEnvironment, model: str = CHURN) -> Iterator[Calls]:
        """Call a model over and over, as long as the block lasts; every answer is checked."""
        calls = Calls()
        with self.client(of) as client, repeating(lambda: _count(calls, client, model), pause=PAUSE_SECONDS):
            yield calls


def call_times(client: ProxyClient, model: str, number: int) -> Calls:
    """Call a model so many times."""
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
        calls.failures.append(f"version {version} answers {found}, and {right} would be right")
    calls.versions[version] += 1
