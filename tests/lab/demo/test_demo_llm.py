"""Language models in the demo, with a real Dynamo: its claims hold, and nothing is left of it."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from lab.demo.llm import figures
from lab.demo.llm.plane import CHAT, CODE
from lab.demo.llm.scenes import SCENES
from lab.local_plane.named_proxy import find, write_names

from .test_demo_real import WALK_SECONDS, all_holds, commands, nothing_is_left, up


@pytest.mark.thorough
def test_all_that_is_claimed_of_language_models_holds(tmp_path: Path) -> None:
    text = all_holds(tmp_path, 2 * WALK_SECONDS, SCENES, "llm")
    for part in ("Internal server error", "429 after", "tokens a second directly"):
        assert part in text, text
    assert len(re.findall(r"\d+ calls(?: afterwards)?, none failed", text)) >= 2, text


@pytest.mark.thorough
def test_what_it_says_to_try_of_language_models_works_and_parts_that_are_killed_run_again(tmp_path: Path) -> None:
    with up(tmp_path, "llm-up", seconds=WALK_SECONDS) as (running, text):
        export, *tries = commands(text)

        def paste(command: str) -> str:
            done = subprocess.run(["bash", "-euc", f"{export}\n{command}"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        models, chat, client, tokens = tries
        if shutil.which("curl"):
            assert [each["id"] for each in json.loads(paste(models))["data"]] == ["chat", "code", "fast"]
            assert paste(chat).rstrip().endswith("data: [DONE]")
        assert len(re.findall(r"^chat-v[12] +word\d+", paste(client), re.MULTILINE)) == 5
        if shutil.which("curl"):
            assert 'part="completion"' in paste(tokens)
        for part in ("proxy", "code-main-0", "code-main-0 code"):
            os.kill(int(re.findall(rf"^{part} +(\d+) ", text, re.MULTILINE)[0]), signal.SIGKILL)
        asked = client.replace(f'"{CHAT}"', f'"{CODE}"')
        end = time.monotonic() + WALK_SECONDS
        while subprocess.run(["bash", "-euc", f"{export}\n{asked}"], capture_output=True, check=False).returncode:
            assert time.monotonic() < end, (tmp_path / "out.txt").read_text()
            time.sleep(1)
        assert (tmp_path / "out.txt").read_text().count("runs again") >= 3
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(WALK_SECONDS) == 0
        nothing_is_left(tmp_path, running.pid)


@pytest.mark.anyio
async def test_a_name_leads_where_its_file_says_now_and_any_other_is_looked_up(tmp_path: Path) -> None:
    file = tmp_path / "names"
    write_names(file, {"chat.pool": [("127.0.0.1", 1), ("127.0.0.1", 2)]})
    assert [place for _, place in await find(file, "chat.pool", 8000)] == [("127.0.0.1", 1), ("127.0.0.1", 2)]
    write_names(file, {"chat.pool": []})
    assert await find(file, "chat.pool", 8000) == []
    assert (socket.AF_INET, ("127.0.0.1", 8000)) in await find(file, "127.0.0.1", 8000)


def test_a_ratio_is_the_median_of_pairs_and_stands_beside_one_sides_median_alone() -> None:
    turns = iter(((10.0, 10.0), (10.0, 9.0), (30.0, 24.0)))
    order, pair = list[int](), (0.0, 0.0)

    def side(number: int) -> float:
        nonlocal pair
        if len(order) % 2 == 0:
            pair = next(turns)
        order.append(number)
        return pair[number]

    pairs = figures._by_turns(3, [lambda: side(0), lambda: side(1)])
    assert order == [1, 0, 0, 1, 1, 0], "each begins in its turn"
    assert figures._compared(pairs) == figures.Compared(direct=10.0, ratio=0.9, middle=(0.8, 1.0))
