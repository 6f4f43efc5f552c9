"""Every version that a lock pins is one that pip takes by the pyproject.toml, so users can install what is tested."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = {
    "pyproject.toml": "run.txt",
    "proxy/pyproject.toml": "proxy.txt",
    "policies/eviction/pyproject.toml": "eviction.txt",
    "client/pyproject.toml": "client.txt",
}


@pytest.mark.parametrize("project", LOCKS)
def test_pip_takes_the_versions_of_the_lock(project: str) -> None:
    """uv falls back to a pre-release where no release fits. pip does so only where the requirement names one."""
    dependencies = tomllib.loads((ROOT / project).read_text("utf-8"))["project"]["dependencies"]
    lock = (ROOT / "requirements" / LOCKS[project]).read_text("utf-8")
    locked = {
        canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE)
    }
    requirements = [Requirement(each) for each in dependencies]
    assert requirements
    refused = {}
    for each in requirements:
        version = locked[canonicalize_name(each.name)]
        if not each.specifier.contains(version, prereleases=bool(each.specifier.prereleases)):
            refused[str(each)] = version
    assert refused == {}
