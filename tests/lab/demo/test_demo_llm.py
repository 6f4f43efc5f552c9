"""Language models in the demo, with a real Dynamo: its claims hold, and its lines work when they are pasted."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from lab.demo.llm import SCENES

from .test_demo_real import WALK_SECONDS, all_holds, commands, nothing_is_left, up


@pytest.mark.thorough
def test_all_that_is_claimed_of_language_models_holds(tmp_path: Path) -> None:
    text = all_holds(tmp_path, WALK_SECONDS, SCENES, "llm")
    assert "100 words, the first after" in text


@pytest.mark.thorough
def test_what_it_prints_to_try_of_language_models_works(tmp_path: Path) -> None:
    with up(tmp_path, "llm-up", seconds=WALK_SECONDS) as (running, text):
        export, models, chat, client, tokens = commands(text)

        def paste(command: str) -> str:
            done = subprocess.run(["bash", "-euc", f"{export}\n{command}"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert re.match(r"chat +word\d+", paste(client))
        if shutil.which("curl"):
            assert [each["id"] for each in json.loads(paste(models))["data"]] == ["chat", "code"]
            assert paste(chat).rstrip().endswith("data: [DONE]")
            assert 'part="completion"' in paste(tokens)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(WALK_SECONDS) == 0
        nothing_is_left(tmp_path, running.pid)
