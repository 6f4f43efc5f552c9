"""`tidegate status` with a real environment. It loads nothing."""

from typing import Any

import pytest

from lab.local_plane.environment import ON_DEMAND, PRELOAD

from .conftest import Cli


def by_name(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["model"]: each for each in found}


def test_status_shows_the_models_and_loads_nothing(cli: Cli) -> None:
    [plane] = cli.json("status")
    assert (plane["environment"], plane["plane"], plane["caller"]) == ("dev", "here", "visitor")
    found = by_name(plane["models"])
    assert set(found) == {"batched", "versions", "add_sub", "late", "huge"}
    assert {name for name, each in found.items() if each["state"] == "resident"} == set(found) - {"late", "huge"}
    late = found["late"]
    assert (late["server"], late["loading"], late["state"], late["versions"]) == (ON_DEMAND, "on-demand", "cold", [])
    assert found["versions"]["server"] == PRELOAD
    assert by_name(cli.json("status")[0]["models"])["late"]["state"] == "cold"


def test_status_shows_the_reason_for_the_version_that_responds(cli: Cli) -> None:
    [plane] = cli.json("status")
    found = by_name(plane["models"])
    assert (found["add_sub"]["versions"], found["add_sub"]["missing"]) == ([1], [2])
    assert "2 (not ready)" in cli.run("status")
    assert {name: each["traffic"] for name, each in found.items()} == {
        "batched": "newest", "late": "newest", "huge": "newest",
        "versions": "champion → 1", "add_sub": "100 % 1, 0 % 2",
    }  # fmt: skip


def test_models_have_their_inputs_and_outputs(cli: Cli) -> None:
    batched = by_name(cli.json("status", "batched")[0]["models"])["batched"]
    assert batched["inputs"] == ["INPUT FP32[3]"]
    assert batched["outputs"] == ["OUTPUT FP32[3]"]
    assert batched["maxBatch"] == 4
    assert "inputs: INPUT FP32[3], up to 4 rows. Outputs: OUTPUT FP32[3]" in cli.run("status", "batched")
    assert "inputs:" not in cli.run("status")


def test_the_proxys_address_alone_is_enough(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_ENVIRONMENTS")
    [plane] = cli.json("status", "--proxy", cli.environment.url)
    assert plane["environment"] == "dev"
    found = by_name(plane["models"])
    assert {"batched", "versions", "add_sub"} <= set(found)
    assert (found["huge"]["state"], found["huge"]["server"], found["huge"]["loading"]) == (
        "cold",
        ON_DEMAND,
        "on-demand",
    )
    monkeypatch.setenv("DOMINO_INFERENCE_PROXY", cli.environment.url)
    assert "batched" in cli.run("status")
