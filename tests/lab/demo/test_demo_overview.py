"""The overview of the demo in a real browser: at two widths, light and dark.

TIDEGATE_PICTURES=docs/pictures keeps what was seen, for the README.
"""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from lab.demo.stage import CALLER, platform
from lab.demo.visitor import Visitor
from lab.local_plane.environment import LocalEnvironment
from tests.lab.chromium import Tab, chromium
from tests.proxy.rigs.pytest_rigs import not_run

pytestmark = [pytest.mark.thorough, pytest.mark.anyio]
LOOKS = {"wide, light": (1280, 900, False), "narrow, dark": (390, 844, True)}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEnvironment]:
    with not_run("THE DEMO"), platform(tmp_path_factory.mktemp("overview")) as made:
        visitor = Visitor([each.http for each in made.proxies], made.keys[CALLER])
        for model in ("sparrow", "unicorn", "ant", "bee", "goat"):
            visitor.want(model)
        yield made


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with not_run("A BROWSER"), ExitStack() as stack:
        yield stack.enter_context(chromium(tmp_path_factory.mktemp("chromium")))


@asynccontextmanager
async def page(browser: str, plane: LocalEnvironment, look: tuple[int, int, bool]) -> AsyncIterator[Tab]:
    width, height, dark = look
    async with Tab(browser) as tab:
        await tab.look(f"http://{plane.proxies[0].http}/models", width, height, dark=dark)
        await tab.until("document.readyState === 'complete' && find('said').textContent !== ''")
        await tab.read(f"find('key').value = '{plane.keys[CALLER]}'")
        await tab.read("find('who').requestSubmit()")
        await tab.until("document.querySelectorAll('tr.resident').length > 0")
        yield tab


@pytest.mark.parametrize("look", LOOKS)
async def test_a_browser_shows_slices_and_models_without_an_error_and_within_its_width(
    browser: str, plane: LocalEnvironment, look: str, tmp_path: Path
) -> None:
    async with page(browser, plane, LOOKS[look]) as tab:
        assert await tab.read("document.querySelectorAll('.bar').length") == 1
        assert "ant" in await tab.read("find('slices').textContent")
        assert await tab.read("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
        colours = await tab.read("[getComputedStyle(document.body).color, getComputedStyle(find('said')).color]")
        assert (colours[0] == "rgb(255, 255, 255)") == look.endswith("dark")
        assert not [each for each in tab.errors if "401" not in each], "but for the first look, without a key"
        folder = Path(os.environ.get("TIDEGATE_PICTURES") or tmp_path)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"overview-{look.partition(',')[0]}.png"
        await tab.read("document.querySelector('.bar button').click()")
        await tab.read("document.activeElement.blur()")
        await tab.read("find('key').value = ''")
        await tab.picture(file)
        assert file.stat().st_size > 10_000
