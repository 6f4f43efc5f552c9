"""Works through the steps of a rollout. It knows engines and gates as functions, and records each step first."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from stacks.command import CommandError

from .journal import Ending, Journal, State
from .report import Lines

Show = Callable[[str], None]  # Takes a line of output about a plane.
Work = Callable[[str, Show], None]
"""Work on a plane. Raises CommandError if it fails, and Interrupted if it was stopped."""


class Interrupted(Exception):
    """A person stopped the work on a plane."""


@dataclass
class Stop:
    """How a person stops a rollout: `soon` starts no further plane, `now` interrupts the running ones."""

    soon: threading.Event = field(default_factory=threading.Event)
    now: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Runner:
    """Carries out one rollout, wave after wave, and keeps its journal."""

    journal: Journal
    bring_up: Work
    await_health: Work
    watch: Lines
    stop: Stop
    most: int  # Number of planes at the same time.
    keep_going: bool = False  # Whether a failed plane does not stop the others.

    def run(self) -> Ending:
        """Work through the remaining steps, and return how it ended."""
        steps = self.journal.record.steps
        for number, step in enumerate(steps, 1):
            waiting = [plane for plane in step.planes if not self._passed(plane)]
            if not waiting:
                continue
            self.watch.step(step, number, len(steps))
            self._together(waiting)
            failed = not all(self._passed(plane) for plane in step.planes)
            if self.stop.soon.is_set() or (failed and not self.keep_going):
                break
        states = {status.state for status in self.journal.record.planes.values()}
        ending: Ending = "succeeded" if states == {"passed"} else "failed" if "failed" in states else "stopped"
        self.journal.note_outcome(ending)
        return ending

    def _together(self, planes: list[str]) -> None:
        """Work on planes in parallel. After a failure, or if a person stops, no further plane is started."""
        with ThreadPoolExecutor(self.most, thread_name_prefix="plane") as pool:
            at_work: set[Future[bool]] = set()
            going = True
            waiting = list(planes)
            while at_work or (going and waiting):
                while going and waiting and len(at_work) < self.most and not self.stop.soon.is_set():
                    at_work.add(pool.submit(self._one, waiting.pop(0)))
                if not at_work:
                    return
                done, at_work = wait(at_work, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in done:
                    going = (future.result() or self.keep_going) and going

    def _one(self, plane: str) -> bool:
        """Apply one plane and wait for its gate. Return whether that succeeded."""
        begin = time.monotonic()

        def show(text: str) -> None:
            self.watch.output(plane, text)

        def note(state: State, text: str = "") -> None:
            seconds = time.monotonic() - begin
            self.journal.note_plane(plane, state, None if state == "applying" else seconds, text)
            self.watch.state(plane, state, f"{seconds:.0f} s" if state == "passed" else text)

        note("applying")
        what = "applying it"
        try:
            self.bring_up(plane, show)
            note("applied")
            what = "health gate"
            self.await_health(plane, show)
        except CommandError as error:
            note("failed", f"{what}: {error}")
            return False
        except Interrupted:
            note("interrupted", what)
            return False
        note("passed")
        return True

    def _passed(self, plane: str) -> bool:
        return self.journal.record.planes[plane].state == "passed"
