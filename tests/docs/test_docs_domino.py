from datetime import date
from pathlib import Path

import yaml

from policies.guardrails import check
from rollout.render import render
from stacks.images_lock import ImagesLock, PinnedImage
from stacks.load import parse
from stacks.validate import validate

TEXT = (Path(__file__).resolve().parents[2] / "docs/examples/domino.yaml").read_text("utf-8")


def test_its_definition_has_no_findings_at_all() -> None:
    images = [f"{image['repository']}:{image['tag']}" for image in yaml.safe_load(TEXT)["images"]]
    pins = tuple(PinnedImage(image=image, digest=f"sha256:{0:064x}") for image in sorted(images))
    definition = validate(parse(TEXT, "docs/examples/domino.yaml"), ImagesLock(images=pins))
    assert definition.advisories == ()
    objects = {stack.name: render(stack, definition).objects for stack in definition.stacks}
    assert objects.keys() == {"dev-eu", "prod-eu", "prod-us"}
    assert [str(one) for of_stack in objects.values() for one in check(of_stack, date(2027, 1, 1))] == []
