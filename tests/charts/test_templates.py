"""The templates are those of the components, and are written for people."""

import re
from pathlib import Path

import pytest

import components
from charts import templates


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return templates()


def test_every_component_that_declares_objects_has_a_file_of_its_own(generated: dict[str, str]) -> None:
    folder = Path(components.__file__).parent
    sources = {"_".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("*.py")}
    files = {name.removesuffix(".yaml").replace("-", "_") for name in generated if name.endswith(".yaml")}
    assert files <= sources | {"mesh"}  # the mesh stands with Domino, which brings it
    assert {"environment", "proxy", "triton_pool", "dataset_volume", "network_boundary", "monitoring"} <= files


def test_a_template_says_where_it_comes_from_and_what_it_is(generated: dict[str, str]) -> None:
    for name, text in generated.items():
        if name.endswith(".yaml"):
            heading, _, _ = text.partition("*/}}")
            assert re.search(r"Generated from components/[\w/]+\.py by `make chart`; never edited by hand\.", heading)
            assert len(heading.strip().splitlines()) >= 4, name


def test_comments_of_the_components_stand_above_the_same_lines(generated: dict[str, str]) -> None:
    lines = [line.strip() for line in generated["triton-pool.yaml"].splitlines()]
    for comment, below in {
        "# Replicas share nothing: none needs to wait for another.": "podManagementPolicy: Parallel",
        "# One model that fails to load must not take the others down.": '- "--exit-on-error=false"',
        "# Patient: a big load can hold up Triton's HTTP front end for seconds.": "livenessProbe:",
        "# A query without a result must not scale to the minimum: it says nothing.": 'ignoreNullValues: "false"',
    }.items():
        assert lines.count(comment) == 1, comment
        assert lines[lines.index(comment) + 1] == below
    proxy = [line.strip() for line in generated["proxy.yaml"].splitlines()]
    comment = "# By its addresses a replica knows how many there are, and so its share of a rate limit."
    assert proxy[proxy.index(comment) - 1 : proxy.index(comment) + 2] == ["---", comment, "apiVersion: v1"]


def test_helpers_hold_files_and_conditions_that_are_no_expressions_and_nothing_else(generated: dict[str, str]) -> None:
    names = re.findall(r'define "([^"]+)"', generated["_helpers.tpl"])
    assert set(names) == {
        "tidegate.access.json",
        "tidegate.any.server.identity.cloud.gcp",
        "tidegate.any.server.triton.grpcTls",
        "tidegate.eviction.json",
        "tidegate.routing.json",
        "tidegate.settings-checksum",
    }
    used = "".join(text for name, text in generated.items() if name.endswith(".yaml"))
    assert all(f'include "{name}"' in used for name in names)
