import re
from pathlib import Path

import yaml

from stacks.definition.pools import OnDemand

PAGE = (Path(__file__).resolve().parents[2] / "docs/eviction.md").read_text("utf-8")


def test_the_settings_on_the_page_are_valid_and_the_first_are_the_recommended_ones() -> None:
    texts = re.findall(r"^```yaml\n(loading: .*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    recommended, quick, staged = (OnDemand.model_validate(yaml.safe_load(text)["loading"]) for text in texts)
    assert recommended == OnDemand.model_validate({"mode": "on-demand", "waitSeconds": 60})
    assert (quick.policy, quick.idle_seconds) == ("cost-aware", quick.lease_seconds)
    assert staged.staging
