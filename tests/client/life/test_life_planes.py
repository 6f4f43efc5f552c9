"""One environment on two data planes: a version comes to both, or to none."""

import errno
import os
from pathlib import Path

import pytest
from tidegate.errors import UnfinishedError
from tidegate.life.context import Context
from tidegate.life.past import history
from tidegate.life.publish import Outcome, bring
from tidegate.triton.publishing import read_published, steps
from tidegate_contracts.environments import Environment, Environments

from .calling import Caller
from .entries import golden, write_entry
from .worlds import World

pytestmark = pytest.mark.thorough


@pytest.fixture
def both(world: World, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """Dev's processes as one data plane of an environment, and prod's as another, each with a volume of its own."""
    places = {"east": world.dev, "west": world.prod}
    datasets = (f"both/{name}/models={each.dataset}" for name, each in places.items())
    monkeypatch.setenv("TIDEGATE_DATASETS", ",".join(datasets))
    planes = (
        each.facts().planes[0].model_copy(update={"name": name, "wave": wave})
        for wave, (name, each) in enumerate(places.items(), 1)
    )
    return Environment(name="both", planes=tuple(planes))


def test_a_version_comes_to_both_data_planes_or_to_none(world: World, both: Environment, tmp_path: Path) -> None:
    context: Context = world.context()
    context.known = Environments(environments=(both,))
    registry = context.registry

    def brought(factor: int) -> Outcome:
        entry = tmp_path / str(factor) / "wide"
        if not entry.exists():
            write_entry(entry, factor)
        return bring(
            context, "deploy", registry.register(entry, registered_by="anna", golden=golden(factor)), both, "ci"
        )

    def aliases() -> list[dict[str, int]]:
        files = (each.repository("preload") / "wide" / "config.pbtxt" for each in (world.dev, world.prod))
        return [read_published(file.read_text()).aliases for file in files]

    one = brought(3)
    assert (one.version, one.planes, aliases()) == (1, ("east", "west"), [{"champion": 1}] * 2)
    with Caller(world.client(world.dev), "wide") as east, Caller(world.client(world.prod), "wide") as west:
        seen = 0

        def fail(when: str, step: str) -> None:
            nonlocal seen
            if (when, step) == ("before", "rename partial to config.pbtxt"):
                seen += 1
                if seen == 4:  # the cut-over in the west; the east has had its own
                    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

        steps.watch(fail)
        try:
            with pytest.raises(UnfinishedError, match="version 1 serves on"):
                brought(5)
        finally:
            steps.watch()
        assert aliases() == [{"champion": 1}] * 2
        two = brought(5)
        assert (two.version, two.previous, two.changed) == (2, 1, True)
        assert aliases() == [{"champion": 2}] * 2
        east.until(5)
        west.until(5)
    assert east.failures == west.failures == []
    told = [(each.version, each.plane, each.previous) for each in history(context, "wide", "both")]
    assert told == [(2, "west", 1), (2, "east", 1), (1, "west", None), (1, "east", None)]
    assert registry.alias("wide", "both") == 2
