"""The site has every page, and requests nothing from other hosts. test_docs_links checks its links."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.site import conf
from tests.proxy.rigs.pytest_rigs import not_run

ROOT = Path(__file__).resolve().parents[3]


def test_every_page_is_in_the_contents() -> None:
    pages = {file.stem for file in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages == {line for line in conf.CONTENTS.splitlines() if re.fullmatch(r"[\w-]+", line)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site") / "site"
    install = [sys.executable, "requirements/install.py"]
    with not_run("SPHINX"):
        made = subprocess.run([*install, "site"], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        if made.returncode:
            pytest.fail(f"NOT RUN: {made.stderr}")
        where = subprocess.run([*install, "--where", "site"], cwd=ROOT, capture_output=True, text=True, check=True)
        command = [f"{where.stdout.strip()}/bin/python", "-m", "sphinx", "--fail-on-warning", "--quiet", "-b", "html"]
        command += ["-c", "lab/site", "-d", str(folder.with_name("doctrees")), ".", str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stderr) == (0, ""), "each warning of Sphinx's is an error"
        yield folder


@pytest.mark.thorough
def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for file in (ROOT / "docs").glob("*.md"):
        assert (site / "docs" / f"{file.stem}.html").exists()
    loads = re.compile(
        r"""<(?:script|img|iframe)[^>]*src="(?:https?:)?//|<link[^>]*href="(?:https?:)?//|@import|url\(["']?//"""
    )
    for file in site.rglob("*.html"):
        assert not loads.search(file.read_text("utf-8")), file
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\([\"']?(?:https?:)?//", style.read_text("utf-8")), style
