"""An answer as the change of a definition: the pool, and the `models:` that it serves."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tidegate_eviction.simulate.trace import Trace

from stacks.definition.base import LEAST_BYTES, byte_count
from stacks.definition.mig_cuts import fewest_gpus
from stacks.definition.pools import OnDemand, Pool
from stacks.definition.servers import Server
from stacks.problems import listed
from stacks.stack import Stack

from .answers import Answer, pool_tree
from .overlay import laid_over, overlay_text

_ON_DEMAND: Final = "ondemand"  # Name of the server, where the definition has none that loads on demand.


@dataclass(frozen=True)
class DefinitionPatch:
    """What is to be pasted, and what it means."""

    text: str
    said: tuple[str, ...]
    """Which pools go, and which stay; sentences."""


@dataclass(frozen=True)
class _Place:
    """The server that gets the pools of an answer, in one stack or in none."""

    stack: Stack | None
    mine: frozenset[str]  # Models of the trace.

    @property
    def server(self) -> Server | None:
        """The first server with an on-demand pool that has one of the models, or else with any such pool."""
        found = [at for at in self._pools() if isinstance(at[1].loading, OnDemand)]
        return next((server for server, _, models in [*(at for at in found if at[2] & self.mine), *found]), None)

    @property
    def name(self) -> str:
        """Its name, or that of a new one."""
        taken = [server.name for server, _, _ in self._pools()]
        return self.server.name if self.server else _unused(_ON_DEMAND, taken)

    def gone(self) -> list[Pool]:
        """Return its on-demand pools that the answer replaces: all their models are in the trace."""
        mine = [at for at in self._pools() if at[0].name == self.name and isinstance(at[1].loading, OnDemand)]
        return [pool for _, pool, models in mine if models and models <= self.mine]

    def staying(self) -> Iterator[str]:
        """Yield sentences about pools that stay, though their models go to the answer's pools."""
        gone = self.gone()
        for server, pool, models in self._pools():
            if models & self.mine and not (server.name == self.name and pool in gone):
                left = listed(sorted(models - self.mine), most=5)
                why = f"it has {left} too, which the trace does not call" if left else "its files lie elsewhere"
                if not isinstance(pool.loading, OnDemand):
                    why = f"it preloads what lies in its folder{f', {left} too' if left else ''}"
                moved = listed(sorted(models & self.mine), most=5)
                yield f"{server.name}/{pool.name} stays, for {why}; take it away once it is not needed for {moved}."

    def said_now(self) -> Iterator[dict[str, Any]]:
        """Yield models that are in the server's first pool without saying so: with several pools each one says it."""
        for model in self.stack.platform.models if self.stack and self.server else ():
            if self.server and model.server == self.name and model.pool is None and model.name not in self.mine:
                yield {"name": model.name, "pool": self.server.pools[0].name}

    def _pools(self) -> list[tuple[Server, Pool, frozenset[str]]]:
        """Return every pool with its server and its models."""
        return [
            (server, pool, frozenset(model.name for model in self.stack.models_of(server, pool)))
            for _, server, pool in (self.stack.pools() if self.stack else ())
            if self.stack
        ]


def definition_patch(stack: Stack | None, answer: Answer, trace: Trace) -> DefinitionPatch:
    """Return the change that gives a stack the pools of an answer for the models of a trace.

    It is laid over the stack's environment, on all of its data planes; over the definition where there is no stack.
    """
    place = _Place(stack, frozenset(model.name for model in trace.models))
    gone = place.gone()
    name = _unused(answer.name, [pool.name for pool in place.server.pools] if place.server else [])
    tree = pool_tree(answer.gpu, name, answer.on, answer.replicas, answer.loading)
    removed = [{"name": pool.name, "remove": True} for pool in gone]
    change: dict[str, Any] = {
        "servers": [{"name": place.name, "pools": [*removed, tree]}],
        "models": [*_models(place, name, trace), *place.said_now()],
    }
    said = [f"It replaces {listed(f'{place.name}/{pool.name}' for pool in gone)}."] if gone else []
    said += place.staying()
    gpus = (
        fewest_gpus(answer.gpu.product, {answer.on.profile: answer.replicas}) if answer.on.profile else answer.replicas
    )
    said.append(f"Its slices need {gpus} × {answer.gpu.name} at least.")
    if stack is not None:
        change = laid_over(stack.environment.name, change)
        if not answer.gpu.label:
            label = "--gpu <their node label nvidia.com/gpu.product>"
            said.append(f"The definition has no {answer.gpu.name}: say {label}, and the block asks for such GPUs.")
    return DefinitionPatch(overlay_text(change), tuple(said))


def _models(place: _Place, pool: str, trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield the models of a trace as they were simulated: in this pool, not pinned, of their footprints."""
    now = {model.name: model for model in place.stack.platform.models} if place.stack else {}
    for name, size in sorted((model.name, model.footprint_bytes) for model in trace.models):
        old = now.get(name)
        tree: dict[str, Any] = {"name": name, "server": place.name, "pool": pool}
        if old and old.pinned:
            tree["pinned"] = False
        if old and old.idle_seconds is not None:
            tree["idleSeconds"] = None
        if size >= LEAST_BYTES and not (old and old.footprint and byte_count(old.footprint) == size):
            tree["footprint"] = _quantity(size)
        yield tree


def _unused(name: str, taken: Iterable[str]) -> str:
    used, number, found = {*taken}, 2, name
    while found in used:
        found, number = f"{name}-{number}", number + 1
    return found


def _quantity(size: int) -> str:
    for suffix, unit in (("M", 10**6), ("k", 10**3)):
        if size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)
