"""Loads, copies ahead, failures, new contents and lost servers, in any order: nothing that the server reads is lost."""

import asyncio
import random
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path

import hypothesis
from hypothesis import strategies as st
from tidegate_eviction.core.outlook import Outlook
from tidegate_eviction.staging.copying import ChangedError, StagingError
from tidegate_eviction.staging.stager import Result, Stager

from tests.counts import examples

from .rig import Rig, files_below, write_ensemble, write_model

ENSEMBLES = {"ab": ("ab", "a", "b"), "cd": ("cd", "c", "d")}
MODELS = ("a", "b", "c", "d", "e", *ENSEMBLES)
DEEDS = ("load", "load", "load", "ahead", "ahead", "unload", "change", "lose")
TRIES = 40  # Of a look at what the server reads, which others may change meanwhile.


class Core:
    """What the core knows, and what it has done; it never loads two models at once that have a part in common."""

    def __init__(self, rig: Rig, chance: random.Random) -> None:
        self.rig, self.chance = rig, chance
        self.loads: dict[str, asyncio.Task[None]] = {}
        self.resident: set[str] = set()
        self.known = {name: [files_below(rig.root / "source" / name)] for name in MODELS}
        self.staging: asyncio.Task[None] | None = None
        self.begun: list[asyncio.Task[None]] = []

    def say(self) -> None:
        """Have the stager hear how it is."""
        resident, loading = ({piece for each in of for piece in pieces(each)} for of in (self.resident, self.loads))
        sure, likely = self.chance.sample(MODELS, 2)
        self.rig.outlook = Outlook(
            held=frozenset(resident | loading), resident=frozenset(resident - loading), sure=(sure,), likely=(likely,)
        )

    def begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Begin something; its error, if there is one, is raised at the end."""
        task = asyncio.create_task(work)
        self.begun.append(task)
        return task

    async def end(self) -> None:
        """Wait for all that was begun; raise the error of one."""
        for ended in await asyncio.gather(*self.begun, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
        while self.rig.stager._copies or self.rig.stager._going:
            await asyncio.sleep(0.01)

    def do(self, deed: str, model: str) -> None:
        """Begin something, or do it, if it is possible now."""
        entangled = any(set(pieces(model)) & set(pieces(other)) for other in self.loads)
        if deed == "load" and not entangled and model not in self.resident:
            self.loads[model] = self.begin(self.load(model))
        elif deed == "ahead" and (self.staging is None or self.staging.done()):
            self.staging = self.begin(self.ahead())
        elif deed == "unload":
            self.resident.discard(model)
        elif deed == "change" and model not in ENSEMBLES:
            content = self.chance.randbytes(4)
            self.known[model].append({"1/model.bin": (content * 8192)[:8192], "config.pbtxt": b""})
            self.known[model][-1]["config.pbtxt"] = self.known[model][0]["config.pbtxt"]
            write_model(self.rig.root, model, content)
        elif deed == "lose":
            for load in self.loads.values():
                load.cancel()
            self.resident.clear()
        self.say()

    async def ahead(self) -> None:
        """Stage something ahead, as is done each second."""
        self.rig.stager._not_before.clear()
        try:
            await self.rig.stager._ahead()
        except (ChangedError, OSError) as error:
            if not isinstance(error, ChangedError) and "stopped" not in str(error):
                raise

    async def load(self, model: str) -> None:
        """Load a model, which may fail when its files are there, and then be doubted."""
        try:
            await self.rig.stager.ensure(model)
            for _ in range(self.chance.randrange(4)):
                for piece in pieces(model):
                    await self.assert_whole(piece)
                await asyncio.sleep(0.001)
            if self.chance.random() < 0.8:
                self.resident.add(model)
            else:
                await self.rig.stager.doubt(model)
        except StagingError as error:
            if not isinstance(error, ChangedError):
                raise
        finally:
            self.loads.pop(model, None)
            self.say()

    async def assert_whole(self, model: str) -> None:
        """The server finds a content that the model has had."""
        link = self.rig.served / model
        for _ in range(TRIES):
            leads_to = link.resolve(strict=True)
            found = files_below(leads_to)
            if found in self.known[model]:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"{model} is in part at {leads_to}: {found.keys()}")


def pieces(model: str) -> tuple[str, ...]:
    return ENSEMBLES.get(model, (model,))


class Unsteady(Stager):
    """One whose threads take their time, and are noticed late."""

    pause: Callable[[], float] = staticmethod(lambda: 0.0)

    async def _on_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        await asyncio.sleep(self.pause())
        try:
            return await super()._on_thread(work, *arguments)
        finally:
            await asyncio.sleep(self.pause())


async def play(root: Path, deeds: list[tuple[str, str, int]], is_mounted: bool, seed: int) -> None:
    rig, chance = Rig(root, is_mounted=is_mounted), random.Random(seed)
    for name in "abcde":
        write_model(root, name)
    for name, (_, *parts) in ENSEMBLES.items():
        write_ensemble(root, name, *parts)
    stager = rig.make(rig.room_for("ab", "a", "b", "e"), kind=Unsteady)
    Unsteady.pause = staticmethod(lambda: chance.choice((0, 0, 0.001, 0.004)))
    stager.open()
    core = Core(rig, chance)
    async with asyncio.timeout(60):
        for deed, model, steps in deeds:
            core.do(deed, model)
            assert stager.used_bytes <= stager.settings.size_bytes
            await asyncio.sleep(steps * 0.002)
        await core.end()
        assert not stager._claims
        core.resident.clear()
        core.say()
        for model in MODELS:
            await stager.ensure(model)
            for piece in pieces(model):
                assert files_below((rig.served / piece).resolve()) == core.known[piece][-1]
                assert rig.is_near(piece)
        rig.check()
    await stager.close()


@examples(120)
@hypothesis.given(
    deeds=st.lists(
        st.tuples(st.sampled_from(DEEDS), st.sampled_from(MODELS), st.integers(0, 6)), min_size=5, max_size=40
    ),
    is_mounted=st.booleans(),
    seed=st.integers(0, 1 << 16),
)
def test_in_whatever_order_all_comes_nothing_that_is_read_is_lost_and_no_more_is_staged_than_may_be(
    deeds: list[tuple[str, str, int]], is_mounted: bool, seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder), deeds, is_mounted, seed))
