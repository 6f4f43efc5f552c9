import re
import tomllib
from pathlib import Path

import pytest
import yaml
from tidegate import __version__

from charts.project import version

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
PARTS = ["contracts", "service", "proxy", "policies/eviction"]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_has_the_version_of_the_platform(part: str) -> None:
    assert tomllib.loads((ROOT / part / "pyproject.toml").read_text("utf-8"))["project"]["version"] == version()


def test_the_client_and_the_policy_pack_have_that_version() -> None:
    assert __version__ == version()
    pack = yaml.safe_load((ROOT / "policies/guardrails/PulumiPolicy.yaml").read_text("utf-8"))
    assert pack["version"] == version()


DEFINITIONS = [
    "stacks/inference.yaml", "stacks/reference/small.yaml", "stacks/reference/shared.yaml", "charts/example.yaml",
    "docs/examples/domino.yaml",
]  # fmt: skip


@pytest.mark.parametrize("file", DEFINITIONS)
def test_example_definitions_have_the_images_of_this_version(file: str) -> None:
    """They can have keys that an older proxy refuses."""
    text = (ROOT / file).read_text("utf-8")
    tags = re.findall(r"(?:inference-proxy|eviction-policy)(?:, |\n *)tag: (\S+?)}?$", text, re.MULTILINE)
    assert len(tags) == len(re.findall("tidegate/(?:inference-proxy|eviction-policy)", text))
    assert {*tags} == {version()}


def test_versions_have_a_date_and_the_newest_is_first_below_unreleased_changes() -> None:
    unreleased = HEADINGS[0] == "Unreleased"
    found = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) - (\d{4}-\d\d-\d\d)", heading) for heading in HEADINGS[unreleased:]]
    numbers = [tuple(map(int, one.groups()[:3])) for one in found if one]
    assert len(numbers) == len(found)
    assert numbers == sorted(set(numbers), reverse=True)
    current = tuple(map(int, version().split(".")))
    assert current > numbers[0] if unreleased else current == numbers[0]
