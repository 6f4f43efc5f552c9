"""Works through the steps of a rollout. It knows engines and gates as functions, and writes everything down first."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from stacks.command import CommandError

from .journal import Ending, Journal, State
from .report import Lines

Show = Callable[[str], None]  # Takes a line about a plane, for people to see.
Work = Callable[[str, Show], None]
"""What is done to a plane; raises CommandError when it fails, and Interrupted when it was stopped."""


class Interrupted(Exception):
    """The work on a plane was stopped by a person."""


@dataclass
class Stop:
    """How a person stops a rollout: first no further plane is begun, then those at work are interrupted."""

    asked: threading.Event = field(default_factory=threading.Event)
    now: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Runner:
    """Carries one rollout out, wave after wave, and keeps its journal."""

    journal: Journal
    bring_up: Work
    await_health: Work
    watch: Lines
    stop: Stop
    most: int  # How many planes at the same time.
    keep_going: bool = False  # Whether a plane that fails keeps no other from being tried.

    def run(self) -> Ending:
        """Work through the steps from where the journal stands, and say how it ended."""
        steps = self.journal.record.steps
        for number, step in enumerate(steps, 1):
            waiting = [plane for plane in step.planes if not self._passed(plane)]
            if not waiting:
                continue
            self.watch.step(step, number, len(steps))
            self._together(waiting)
            failed = not all(self._passed(plane) for plane in step.planes)
            if self.stop.asked.is_set() or (failed and not self.keep_going):
                break
        states = {status.state for status in self.journal.record.planes.values()}
        ending: Ending = "succeeded" if states == {"passed"} else "failed" if "failed" in states else "stopped"
        self.journal.note_outcome(ending)
        return ending

    def _together(self, planes: list[str]) -> None:
        """Bring planes up side by side; none is begun any more once one has failed or a person asks to stop."""
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

        def note(state: State, text: str = "") -> None:
            seconds = time.monotonic() - begin
            self.journal.note_plane(plane, state, None if state == "applying" else seconds, text)
            self.watch.state(plane, state, f"{seconds:.0f} s" if state == "passed" else text)

        note("applying")
        what = "bringing it up"
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
