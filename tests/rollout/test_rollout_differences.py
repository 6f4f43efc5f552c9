"""How environments differ, in words."""

from collections.abc import Callable
from pathlib import Path

from rollout.differences import differences, pairs
from rollout.summary import gpu_slices, how_they_differ
from stacks.validate import read_definition

ROOT = Path(__file__).resolve().parents[2]


def test_dev_and_prod_differ_in_what_their_overlays_say_and_in_nothing_else(definition: Path) -> None:
    read = read_definition(definition)
    assert [str(value) for value in differences(*read.stacks)] == [
        "namespace tidegate-dev → tidegate-prod",
        "datasets.models.path /models → /prod",
        "proxy.replicas 1 → autoscaled 3–12",
    ]


def test_a_thing_of_another_kind_is_one_difference(definition: Path, edit: Callable[[str, str], None]) -> None:
    edit("proxy: {replicas: null,", "proxy: {exposure: {kind: ingress, host: a.test}, replicas: null,")
    assert "  proxy.exposure cluster-ip → ingress (host a.test, path /)" in how_they_differ(read_definition(definition))


def test_stacks_of_one_environment_are_compared_too(definition: Path) -> None:
    plane = "  - {name: west, environments: [prod], datasets: [{name: models, path: /west}]}\n"
    definition.write_text(definition.read_text("utf-8") + plane, "utf-8")
    read = read_definition(definition)
    assert [title for title, _, _ in pairs(read)] == ["dev → prod", "prod-east → prod-west"]
    assert how_they_differ(read).endswith("prod-east → prod-west:\n  datasets.models.path /prod → /west")


def test_items_that_only_one_environment_has_are_named(definition: Path, edit: Callable[[str, str], None]) -> None:
    edit("  - {name: dev}", "  - {name: dev, models: [{name: two, server: small}]}")
    assert "  models.two two (server small, pinned false) → –" in how_they_differ(read_definition(definition))


def test_long_lists_of_differences_are_cut_and_counted(definition: Path, edit: Callable[[str, str], None]) -> None:
    models = ", ".join(f"{{name: m{n}, server: small}}" for n in range(40))
    edit("  - {name: dev}", f"  - {{name: dev, models: [{models}]}}")
    assert "  … and 19 more" in how_they_differ(read_definition(definition))


def test_one_environment_alone_differs_from_nothing(definition: Path) -> None:
    text = definition.read_text("utf-8")
    text = text.split("  - name: prod\n")[0] + "dataPlanes:\n  - {name: lab, environments: [dev]}\n"
    definition.write_text(text, "utf-8")
    assert how_they_differ(read_definition(definition)) == ""


def test_gpu_slices_are_counted_over_all_replicas() -> None:
    stacks = {stack.name: stack for stack in read_definition(ROOT / "stacks/inference.yaml").stacks}
    assert "3 × MIG 1g.10gb (mixed)" in gpu_slices(stacks["prod-east"]).splitlines()
