"""What the core knows of models whose files are to be near: which are in use, how they were used, which come next."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate_contracts.lease import State

from ..policies import Candidate
from .planner import turn
from .pool import Pool

_SILENT_GAPS = 2  # One that was not called for so many times the mean time between its uses has lost its rhythm.


@dataclass(frozen=True)
class Outlook:
    """The models of a pool, as they are at one time."""

    held: frozenset[str] = frozenset()  # Being loaded, loaded, or not freed yet; parts of others, too.
    resident: frozenset[str] = frozenset()  # Of these, the ones that are loaded, and that no load under way needs.
    uses: Mapping[str, Candidate] = field(default_factory=dict)
    sure: tuple[str, ...] = ()
    """Cold models that callers wait for, or come back for, or that have a warm window soon: the next one first."""
    likely: tuple[str, ...] = ()  # Cold models that are called regularly, the next one first.


def outlook(pool: Pool, seconds: float) -> Outlook:
    """Return what is known of the next so many seconds."""
    states, now = pool.by_state, pool.now
    queued = sorted(states[State.QUEUED].values(), key=lambda each: turn(pool, each, now))
    back = sorted(pool.told_busy(), key=lambda each: each.back_at)
    windows = sorted((each for each in pool.windows if each.opens <= now + seconds), key=lambda each: each.opens)
    opening = [name for each in windows if each.closes > now for name in each.models]
    sure = dict.fromkeys([*(each.name for each in queued), *(each.name for each in back), *opening])
    cold = {name for state in (State.COLD, State.QUEUED) for name in states[state]} - pool.ledger.charges.keys()
    next_use = {
        name: candidate.last_use + candidate.gap_seconds
        for name in cold - sure.keys()
        if (candidate := pool.models[name].candidate).gap_seconds > 0
        and now - candidate.last_use < _SILENT_GAPS * candidate.gap_seconds
    }
    loaded = {
        piece for state in (State.RESIDENT, State.DRAINING) for each in states[state].values() for piece in each.held
    }
    return Outlook(
        held=frozenset(pool.ledger.charges),
        resident=frozenset(loaded).difference(*(each.held for each in pool.loads.values())),
        uses={model.name: model.candidate for model in pool.models.values()},
        sure=tuple(name for name in sure if name in cold),
        likely=tuple(sorted(next_use, key=lambda name: (next_use[name], name))),
    )
