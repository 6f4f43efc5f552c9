"""Works through the steps of a rollout. It knows engines and gates as functions, and writes everything down first."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Protocol

from stacks.command import CommandError

from .journal import Ending, Journal, Story
from .plan import Step

Show = Callable[[str], None]


class Interrupted(Exception):
    """Somebody stopped what was at work on a plane."""


class Work(Protocol):
    """What is done to a plane. Both raise CommandError when it fails, and Interrupted when they were stopped."""

    def bring_up(self, plane: str, show: Show) -> None:
        """Make a plane's stack what its definition says."""

    def await_health(self, plane: str, show: Show) -> None:
        """Return when the health gate of a plane is passed."""


class Watch(Protocol):
    """Whoever looks on."""

    def step(self, step: Step, number: int, of: int) -> None:
        """Take note that a step begins."""

    def state(self, plane: str, state: str, text: str = "") -> None:
        """Take note of where a plane stands now."""

    def says(self, plane: str, text: str) -> None:
        """Take note of what is being said about a plane."""


@dataclass
class Stop:
    """How a person stops a rollout: first no further plane is begun, then those at work are interrupted."""

    asked: threading.Event = field(default_factory=threading.Event)
    now: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Runner:
    """One rollout at work."""

    journal: Journal
    work: Work
    watch: Watch
    stop: Stop
    most: int
    """How many planes at the same time."""
    keep_going: bool = False
    """Whether a plane that fails keeps no other from being tried."""

    def run(self) -> Ending:
        """Work through the steps from where the journal stands, and say how it ended."""
        steps = self.journal.story.begin.steps
        for number, step in enumerate(steps, 1):
            waiting = [plane for plane in step.planes if self._state(plane) != "passed"]
            if not waiting:
                continue
            self.watch.step(step, number, len(steps))
            self._together(waiting)
            if self.stop.asked.is_set() or (self._failed(step) and not self.keep_going):
                break
        ending = ending_of(self.journal.story)
        self.journal.run("ended", ending)
        return ending

    def _together(self, planes: list[str]) -> None:
        """Bring planes up side by side; none is begun any more once one has failed or somebody asks to stop."""
        with ThreadPoolExecutor(self.most, thread_name_prefix="plane") as pool:
            at_work: set[Future[bool]] = set()
            going = True
            waiting = list(planes)
            while at_work or (going and waiting):
                while going and waiting and len(at_work) < self.most and not self.stop.asked.is_set():
                    at_work.add(pool.submit(self._one, waiting.pop(0)))
                if not at_work:
                    return
                done, at_work = wait(at_work, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in done:
                    going = (future.result() or self.keep_going) and going

    def _one(self, plane: str) -> bool:
        """Bring one plane up and through its gate; say whether that went well."""
        begin = time.monotonic()

        def show(text: str) -> None:
            self.watch.says(plane, text)

        def seconds() -> float:
            return time.monotonic() - begin

        self.journal.plane("applying", plane)
        self.watch.state(plane, "applying")
        what = "bringing it up"
        try:
            self.work.bring_up(plane, show)
            self.journal.plane("applied", plane, seconds())
            self.watch.state(plane, "applied")
            what = "health gate"
            self.work.await_health(plane, show)
        except CommandError as error:
            message = f"{what}: {error}"
            self.journal.plane("failed", plane, seconds(), message)
            self.watch.state(plane, "failed", message)
            return False
        except Interrupted:
            self.journal.plane("interrupted", plane, seconds(), what)
            self.watch.state(plane, "interrupted", what)
            return False
        self.journal.plane("passed", plane, seconds())
        self.watch.state(plane, "passed", f"{seconds():.0f} s")
        return True

    def _state(self, plane: str) -> str:
        return self.journal.story.planes[plane].state

    def _failed(self, step: Step) -> bool:
        return any(self._state(plane) != "passed" for plane in step.planes)


def ending_of(story: Story) -> Ending:
    """Return how a rollout ends that stands like this and goes no further."""
    states = {standing.state for standing in story.planes.values()}
    if states == {"passed"}:
        return "succeeded"
    return "failed" if "failed" in states else "stopped"
