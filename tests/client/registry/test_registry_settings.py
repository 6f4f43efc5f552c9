import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tidegate.registry.settings import Settings

from .conftest import World
from .entries import entry, registered

SET = "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"
TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"


@given(
    mine=st.dictionaries(st.sampled_from([SET, TIMEOUT]), st.sampled_from(["7", "900", "soon"])), orders=st.randoms()
)
def test_calls_that_overlap_in_any_order_leave_the_environment_as_it_was(mine: dict[str, str], orders: Random) -> None:
    environ = dict(mine)
    settings = Settings(environ).during
    calls = [settings(longer) for longer in (0, 30, 600, 0)]
    ends: list[Callable[[], object]] = []
    for call in calls:
        call.__enter__()
        ends.append(lambda call=call: call.__exit__(None, None, None))  # type: ignore[misc]
        assert environ[SET] == mine.get(SET, "false")
    assert int(environ[TIMEOUT]) == (900 if mine.get(TIMEOUT) == "900" else 720)
    orders.shuffle(ends)
    for end in ends:
        end()
    assert environ == mine


def test_registering_and_fetching_leave_the_environment_as_it_was(world: World, tmp_path: Path) -> None:
    before = dict(os.environ)
    registry = world.registry()
    version = registered(registry, entry(tmp_path, "quiet"))
    registry.fetch(version, tmp_path / "fetched")
    assert dict(os.environ) == before
