"""How few seconds of loading would have been enough, had one known every request beforehand.

Given is one sequence of requests, each with the moment in which it began to be worked on; a model is in memory from
then on for at least `warm_seconds`; footprints of what is in memory never exceed the capacity; loads and unloads take
no time, and a load costs `load_seconds`. No schedule that answers exactly these requests at exactly these moments
spends less on loading. Refusing is a way to load less: so each policy is held against the bound of the requests which
it answered itself.

- `optimum` is exact: dynamic programming over the sets of models that fit (Bellman). It is for small zoos, for it looks
  at 2^models sets for every request.
- `relaxation` is for all others: the linear program in which models may be in memory by halves. It is the flow-based
  offline optimum of Berger, Beckmann and Harchol-Balter ("Practical Bounds on Optimal Caching with Variable Object
  Sizes", SIGMETRICS 2018) with costs, and without their right to bypass. HiGHS solves it.
"""

from array import array
from collections import Counter
from collections.abc import Iterator

from .trace import MissingLibraryError, SimulationError, Trace, shown

try:
    import numpy as np
except ImportError:
    raise MissingLibraryError("the offline bound, for NumPy is not installed") from None

MOST_MODELS = 20  # Of so many models at most the optimum is found exactly: there are a million sets of them.
MOST_REQUESTS = 100_000  # Steps that the linear program is solved for; beyond, it takes longer than people wait.


def bound(trace: Trace, capacity_bytes: int) -> tuple[float, bool] | None:
    """Return a bound, and whether it is the optimum itself; None if the trace is too long for any."""
    if len(set(trace.which)) <= MOST_MODELS:
        return optimum(trace, capacity_bytes), True
    if len(trace) <= MOST_REQUESTS or sum(1 for _ in _steps(trace)) <= MOST_REQUESTS:
        return relaxation(trace, capacity_bytes), False
    return None


def optimum(trace: Trace, capacity_bytes: int) -> float:
    """Return the least seconds of loading, exactly but for rounding to milliseconds.

    `least[s]` is what it cost at least to have been able to keep the set s (its bits are models), and is never more for
    a part of a set than for the whole: what is in memory may go at any time, for nothing. So a request for m makes of
    every set s with m the lesser of least[s] and least[s without m] + m's load. As long as requests of m are worked on,
    sets without m are impossible; afterwards they cost what they cost with it.
    """
    often = Counter(trace.which)
    # The most used ones get the high bits: their halves of the sets are few long runs of memory.
    bits = {which: bit for bit, which in enumerate(sorted(often, key=lambda each: often[each]))}
    costs = {which: round(trace.models[which].load_seconds * 1e3) for which in often}
    kind = np.int32 if sum(often[which] * costs[which] for which in often) < 1 << 29 else np.int64
    never = 1 << 29 if kind is np.int32 else 1 << 60
    sizes = np.zeros(1 << len(bits), np.int64)
    for which, bit in bits.items():
        sizes.reshape(-1, 2, 1 << bit)[:, 1, :] += trace.models[which].footprint_bytes
    too_large = np.where(sizes > capacity_bytes, never, 0).astype(kind)
    least = np.full(1 << len(bits), never, kind)
    least[0] = 0
    halves = {which: least.reshape(-1, 2, 1 << bit) for which, bit in bits.items()}
    impossible = {which: too_large.reshape(-1, 2, 1 << bit)[:, 1, :] for which, bit in bits.items()}
    steps = list(_steps(trace))
    for model, over in shown(steps, "offline bound", len(steps)):
        for which in over:
            halves[which][:, 0, :] = halves[which][:, 1, :]
        without, within = halves[model][:, 0, :], halves[model][:, 1, :]
        # Already being worked on, it is in every set that is possible: its other half says `never`, or more.
        np.add(without, kind(costs[model]), out=without)
        np.minimum(within, without, out=within)
        np.maximum(within, impossible[model], out=within)
        without[...] = never
    if (found := int(least.min())) >= never:
        raise SimulationError("These requests cannot all be answered: what is worked on at once exceeds the capacity.")
    return found / 1e3


def relaxation(trace: Trace, capacity_bytes: int) -> float:
    """Return a bound from below by linear programming. SimulationError if the solver finds none.

    Between two steps of one model lies an interval; x is the part of the model that stays in memory all along it, and
    (1 - x) loads are charged at its end. At each step what stays, what is worked on and what is asked for fits. The
    rows are differences of neighbouring steps' sums (each variable stands in two of them), which is a network flow.
    """
    try:
        from scipy import optimize, sparse
    except ImportError:
        raise MissingLibraryError("the offline bound of so many models, for SciPy is not installed") from None

    seconds = 0.0
    free_since: dict[int, int] = {}
    """By model: from which step on it need not stay. Those that are worked on now are in `held` instead."""
    held: dict[int, int] = {}
    begins, ends = array("l"), array("l")
    costs, sizes, room = array("d"), array("d"), array("q")
    for row, (which, over) in enumerate(_steps(trace)):
        for each in over:
            del held[each]
            free_since[each] = row
        if which not in held:
            model = trace.models[which]
            since = free_since.pop(which, None)
            if since is None:
                seconds += model.load_seconds  # the first load cannot be spared
            elif since < row:
                begins.append(since)
                ends.append(row)
                costs.append(model.load_seconds)
                sizes.append(model.footprint_bytes / capacity_bytes)
            held[which] = model.footprint_bytes
        room.append(capacity_bytes - sum(held.values()))
    if min(room) < 0:
        raise SimulationError("These requests cannot all be answered: what is worked on at once exceeds the capacity.")
    if not costs:
        return seconds
    rows, many = len(room), len(costs)
    share = np.array(sizes)
    flows = sparse.coo_array(
        (np.concatenate([share, -share]), (np.concatenate([begins, ends]), np.tile(np.arange(many), 2))),
        shape=(rows, many),
    )
    slack = sparse.diags_array([np.ones(rows), -np.ones(rows - 1)], offsets=[0, -1])
    found = optimize.linprog(
        np.concatenate([-np.array(costs), np.zeros(rows)]),
        A_eq=sparse.hstack([flows, slack]).tocsc(),
        b_eq=np.diff(np.array(room) / capacity_bytes, prepend=0.0),
        bounds=np.array([[0.0, 1.0]] * many + [[0.0, np.inf]] * rows),
        method="highs",
    )
    if found.status != 0:
        raise SimulationError(f"The linear program of the offline bound was not solved: {found.message}")
    return seconds + sum(costs) + float(found.fun)


def _steps(trace: Trace) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield each request's model, and the models whose requests have all ended since the step before; several requests
    of one model without another's in between are one step."""
    ends: dict[int, float] = {}
    last = -1
    for second, which in trace.requests():
        end = second + trace.models[which].warm_seconds
        if which == last:
            ends[which] = max(ends[which], end)
            continue
        over = tuple(each for each, until in ends.items() if until <= second)
        for each in over:
            del ends[each]
        ends[which] = max(ends.get(which, 0.0), end)
        last = which
        yield which, over
