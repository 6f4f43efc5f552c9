"""docs/eviction.md: what it recommends is taken."""

import re
from pathlib import Path

import yaml

from stacks.definition.pools import OnDemand

PAGE = (Path(__file__).resolve().parents[2] / "docs/eviction.md").read_text("utf-8")


def test_the_setting_that_it_recommends_is_a_valid_one() -> None:
    (text,) = re.findall(r"^```yaml\n(loading: .*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    found = OnDemand.model_validate(yaml.safe_load(text)["loading"])
    assert (found.policy, found.idle_seconds) == ("cost-aware", found.lease_seconds)
