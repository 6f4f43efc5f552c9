import os
import re
import subprocess
import sys
from pathlib import Path

from tests.pages import as_pattern

PAGE = (Path(__file__).resolve().parents[4] / "docs/export.md").read_text("utf-8")


def test_the_commands_have_the_output_on_the_page(tmp_path: Path) -> None:
    examples = re.findall(r"^```sh\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert len(examples) == PAGE.count("```sh") == 2
    (tmp_path / "bin").mkdir()
    for name, words in {"python": "", "tidegate": "-m tidegate "}.items():
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    variables = os.environ | {"PATH": f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}"}
    variables["PYTHONPATH"] = os.pathsep.join(sys.path)
    for commands, shown in examples:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"exec 2>&1\n{commands}"],
            cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        assert as_pattern(re.sub(r"[\d.]+e-\d+ │", "…", shown)).fullmatch(done.stdout), f"{shown}\n{done.stdout}"
