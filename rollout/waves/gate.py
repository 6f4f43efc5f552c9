"""The health gate: waits until a data plane is well, and stays well for a while."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from stacks.command import CommandError
from stacks.definition.rollout import Gate
from stacks.problems import shortened

from .. import health
from ..health import Target
from ..kubectl import Kubectl
from . import probe
from .runner import Interrupted, Show

_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0
_LONGEST_WHILE_SETTLING = 1.0
_MOST_LINES = 6
_LONGEST = 300

Pause = Callable[[float], bool]
"""Waits for so many seconds; says whether somebody wants to stop."""


@dataclass(frozen=True)
class Look:
    """Looks at one data plane, and says what is missing."""

    gate: Gate
    kubectl: Kubectl
    target: Target

    def lacking(self) -> list[str]:
        """Return what is still missing, of which cheap questions come first."""
        what = "the workloads cannot be looked at"
        try:
            if lines := health.lacking(self.kubectl, self.target):
                return lines
            what = "the probe request is not answered"
            if self.gate.probe is not None:
                probe.send(self.gate.probe, self.kubectl, self.target)
            what = "nobody can say whether an alert fires"
            if self.gate.alerts is not None:
                names = probe.firing(self.gate.alerts, self.kubectl, self.target.namespace)
                return [f"alert {name} fires" for name in names]
        except CommandError as error:
            return [f"{what}: {shortened(' '.join(str(error).split()), _LONGEST)}"]
        return []

    def further(self) -> list[str]:
        """Return what else is known about why it is not well."""
        with suppress(CommandError):
            return health.warnings(self.kubectl, self.target)
        return []


def await_health(look: Look, show: Show, pause: Pause, clock: Callable[[], float] = time.monotonic) -> None:
    """Return when nothing has been missing for the time to settle; raise CommandError when the time is up."""
    gate = look.gate
    end = clock() + gate.timeout_seconds
    well_since: float | None = None
    length = _FIRST_PAUSE
    while True:
        lines = look.lacking()
        moment = clock()
        if lines:
            well_since = None
            show(f"waiting: {lines[0]}" + (f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""))
        else:
            well_since = moment if well_since is None else well_since
            settled = moment - well_since
            if settled >= gate.settle_seconds:
                return
            show(f"well; settling for {gate.settle_seconds - settled:.0f} s")
        if moment >= end:
            if not lines:
                raise CommandError(f"it did not stay well for {gate.settle_seconds} s within {gate.timeout_seconds} s")
            raise CommandError("\n  ".join([f"not passed within {gate.timeout_seconds} s:", *_all(lines, look)]))
        length = min(length * 1.4, _LONGEST_PAUSE if lines else _LONGEST_WHILE_SETTLING)
        left = end - moment if well_since is None else min(end, well_since + gate.settle_seconds) - moment
        if pause(max(0.0, min(length, left))):
            raise Interrupted


def why_not_well(look: Look) -> list[str]:
    """Return what a data plane lacks at this moment, and what its cluster warns of."""
    return _all(look.lacking(), look)


def _all(lines: Sequence[str], look: Look) -> list[str]:
    shown = [*lines[:_MOST_LINES], *([f"… and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else [])]
    return shown + [line for line in look.further()[:_MOST_LINES] if line not in shown]
