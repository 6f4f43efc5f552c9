"""`tidegate advise`: the pressures on each pool of a stack, and one recommendation for each."""

import re
from collections.abc import Iterator
from pathlib import Path

from tidegate_eviction.simulate.report import duration
from tidegate_eviction.simulate.trace import shown

from stacks import devices
from stacks.command import WRONG_INPUT, CommandError, chosen_stacks, tidegate
from stacks.definition.pools import OnDemand
from stacks.problems import count_of, listed
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

from .advice import TARGET, Advice, advise, is_compute_short, is_memory_short
from .answers import target_of
from .lines import too_few
from .overlay import laid_over, overlay_text, place_of
from .pressures import Pressures, pressures
from .recorded import read_samples
from .remedies import PoolUnderReview
from .samples import PoolSamples, Recorded
from .simulations import Figures

NEVER_ADVISED = (
    "Never advised: proxy.rateLimit, which is a decision about callers, and the number of parallel loads, for which "
    "the definition has no key. Simulator and measurements assume four, as many as Triton's threads."
)


def print_advice(definition: Path, name: str | None, prometheus: str, hours: float, match: str, target: str) -> None:
    """Print the advice for the stack of this name. Raises CommandError and DefinitionError."""
    platform = read_definition(definition)
    stacks = chosen_stacks(platform, name)
    if len(stacks) > 1:
        names = listed(stack.name for stack in stacks)
        raise CommandError(f"Add the stack that this Prometheus scrapes: --stack, one of {names}.", WRONG_INPUT)
    (stack,) = stacks
    share = target_of(target)
    if not prometheus:
        raise CommandError("Add the Prometheus to read: --prometheus <url> (--hours 24).", WRONG_INPUT)
    matchers = ",".join(filter(None, [f'namespace="{stack.namespace}"', match]))
    print(*lines_of(platform, stack, read_samples(prometheus, matchers, hours), share), sep="\n")


def lines_of(definition: Definition, stack: Stack, recorded: Recorded, target: float = TARGET) -> Iterator[str]:
    """Yield the lines about each pool."""
    samples = recorded.samples
    yield f"{stack.name}: pressures on its pools in {duration(samples.seconds)}, and advice"
    pools = list(subjects(stack, recorded))
    for subject in shown(pools, "simulating changes of each pool", len(pools)):
        advice = advise(subject, recorded.trace, target)
        yield ""
        yield from _of_pool(definition, subject, advice, target)
    yield ""
    yield from too_few(sum(subject.found.calls for subject in pools), samples.seconds)
    if recorded.why_no_trace:
        yield f"Nothing could be simulated: {recorded.why_no_trace}"
    yield NEVER_ADVISED


def subjects(stack: Stack, recorded: Recorded) -> Iterator[PoolUnderReview]:
    """Yield each pool with its pressures."""
    for path, server, pool in stack.pools():
        pods = re.compile(re.escape(f"{server.made_as}-{pool.made_as}") + "-[0-9]+")
        found = PoolSamples(recorded.samples, server.name, pool.name, pods)
        names = [model.name for model in stack.models_of(server, pool)]
        yield PoolUnderReview(stack, path, server, pool, pressures(found, names))


def _of_pool(definition: Definition, subject: PoolUnderReview, advice: Advice, target: float) -> Iterator[str]:
    found, device = subject.found, devices.device(subject.pool.placement)
    calls = count_of(round(found.calls), "call")
    yield f"{subject.name}  {count_of(found.replicas, 'replica')} on {device or 'CPU'}, {calls}"
    for what, is_short, text in _figures(subject, target):
        yield f"  {what:<8} {'short' if is_short else 'ok':<6} {text}"
    yield f"  advice   {advice.kind}: {advice.why}"
    if advice.change:
        environment, check = subject.stack.environment.name, tidegate("check", definition.file)
        yield f"           Merge this into {place_of(definition, environment)}, then run `{check}`:"
        yield from (f"    {line}" for line in overlay_text(laid_over(environment, advice.change)).splitlines())
    if advice.now is not None:
        then = f" → {_expected(advice.then)}" if advice.then is not None else ""
        yield f"  expected {_expected(advice.now)}{then} (the same calls, simulated)"
    if advice.remark:
        yield f"  note     {advice.remark}"
    planes = sum(each.environment.name == subject.stack.environment.name for each in definition.stacks)
    if advice.kind == "fewer replicas" and planes > 1:
        again = tidegate("advise", definition.file)
        yield f"  note     This changes every data plane of the environment. First run `{again}` for each."


def _expected(each: Figures) -> str:
    return f"{each.share_warm:.1%} warm, {each.refused:,} refused, {each.lost_seconds:,.0f} s lost"


def _figures(subject: PoolUnderReview, target: float) -> Iterator[tuple[str, bool, str]]:
    found, loading = subject.found, subject.pool.loading
    if isinstance(loading, OnDemand):
        taken = "" if found.taken is None else f", {found.taken:.0%} of the memory taken"
        lost = found.lost_seconds(loading.wait_seconds)
        yield (
            "memory",
            is_memory_short(found, target),
            f"{found.warm:.1%} of calls found their model resident, {found.evicted:,.0f} evictions for others, "
            f"{found.busy_for_room:,.0f} refused as busy, {lost:,.0f} s lost{taken}",
        )
    work = found.work
    each = work.queued_seconds / max(1.0, found.calls) * 1e3
    computing = work.compute_seconds / max(1.0, found.calls) * 1e3
    yield "compute", is_compute_short(found), f"{each:,.0f} ms queued and {computing:,.0f} ms computed per call"
    if isinstance(loading, OnDemand):
        is_slow = found.busy_for_loads > 0 or bool(found.reading and found.reading.slow)
        yield "loads", is_slow, _loads(found)


def _loads(found: Pressures) -> str:
    read = found.reading
    rate = f"files at {read.bytes_per_second / 1e6:,.0f} MB/s" if read else "too few loads to measure the file rate"
    return (
        f"{found.loads:,.0f} loads, {found.load_seconds:,.0f} s, on average {found.loading:.1f} running and "
        f"{found.queued:.1f} queued, {found.busy_for_loads:,.0f} refused as busy, {rate}"
    )
