"""`tidegate status`, of a real environment: nothing is loaded for looking."""

import json
from pathlib import Path
from typing import Any

import pytest
from tidegate.calling.proxy import ProxyClient
from tidegate_contracts.environments import Environments

from lab.local_plane.environment import ON_DEMAND, PRELOAD
from lab.local_plane.process import HOST, free_ports

from .conftest import Cli

FOUR_ROWS = {"inputs": [{"name": "INPUT", "shape": [4, 3], "datatype": "FP32", "data": [1.0] * 12}]}


def by_name(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["model"]: each for each in found}


def test_looking_tells_what_is_there_and_loads_nothing(cli: Cli) -> None:
    [plane] = cli.json("status")
    assert (plane["environment"], plane["plane"], plane["caller"]) == ("dev", "here", "visitor")
    found = by_name(plane["models"])
    assert set(found) == {"batched", "versions", "add_sub", "repeat", "words", "late", "huge"}
    assert {name for name, each in found.items() if each["state"] == "resident"} == set(found) - {"late", "huge"}
    late = found["late"]
    assert (late["server"], late["loading"], late["state"], late["versions"]) == (ON_DEMAND, "on-demand", "cold", [])
    assert late["inputs"] == []
    assert found["versions"]["server"] == PRELOAD
    assert by_name(cli.json("status")[0]["models"])["late"]["state"] == "cold"


def test_where_only_the_proxy_s_address_is_known_models_that_are_not_in_memory_are_told_too(cli: Cli) -> None:
    address = cli.json("status")[0]["proxy"]
    for words in (("huge",), ()):
        [plane] = cli.json("status", *words, "--proxy", address)
        huge = by_name(plane["models"])["huge"]
        assert huge["state"] == "cold"
        assert (huge["server"], huge["loading"]) == (ON_DEMAND, "on-demand")


def test_it_tells_who_decides_which_version_answers(cli: Cli) -> None:
    [plane] = cli.json("status")
    found = by_name(plane["models"])
    ready = {version["version"]: version["ready"] for version in found["add_sub"]["versions"]}
    assert ready == {"1": True, "2": False}  # which is named, and is not there
    table = cli.run("status")
    assert "2 (not ready)" in table
    assert "COMPUTING" not in table
    assert {name: each["traffic"] for name, each in found.items()} == {
        "batched": "newest", "repeat": "newest", "words": "newest", "late": "newest", "huge": "newest",
        "versions": "champion → 1", "add_sub": "100 % 1, 0 % 2",
    }  # fmt: skip


def test_models_tell_what_they_take_and_give(cli: Cli) -> None:
    batched = by_name(cli.json("status")[0]["models"])["batched"]
    assert batched["inputs"] == ["INPUT FP32[3]"]
    assert batched["outputs"] == ["OUTPUT FP32[3]"]
    assert batched["maxBatch"] == 4
    assert "takes INPUT FP32[3], 4 rows at most; gives OUTPUT FP32[3]" in cli.run("status", "batched")
    assert "takes" not in cli.run("status")


def test_who_is_called_is_counted_and_stands_first(cli: Cli) -> None:
    with ProxyClient(cli.environment.url) as client:
        for _ in range(20):
            client.infer_json("batched", FOUR_ROWS)
    first = cli.json("status")[0]["models"][0]
    [version] = first["versions"]
    assert first["model"] == "batched"
    assert version["requests"] >= 20
    assert version["rows"] >= 2 * version["requests"]
    assert version["meanSeconds"] > 0
    assert version["lastUsed"].startswith("20")


def test_what_is_loaded_by_a_call_is_in_memory(cli: Cli) -> None:
    cli.run("predict", "late", "--environment", "dev", "--input", "INPUT=[1, 2, 3]")
    [late] = cli.json("status", "late")[0]["models"]
    assert late["state"] == "resident"
    assert late["versions"][0]["version"] == "1"
    assert late["versions"][0]["requests"] >= 1
    table = cli.run("status", "late")
    assert "resident" in table


def test_one_plane_that_is_down_hides_no_other(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Environments.model_validate_json(Path(cli.variables["TIDEGATE_ENVIRONMENTS"]).read_bytes())
    here = known.environments[0]
    (port,) = free_ports(1)
    gone = here.planes[0].model_copy(update={"name": "gone", "proxy_url": f"http://{HOST}:{port}"})
    both = here.model_copy(update={"planes": (*here.planes, gone)})
    file = tmp_path / "both.json"
    file.write_text(Environments(environments=(both,)).model_dump_json(by_alias=True))
    monkeypatch.setenv("TIDEGATE_ENVIRONMENTS", str(file))
    said = cli.run("status", code=6)
    assert "dev on here" in said
    assert "dev gone: " in said
    assert "cannot be reached" in said
    found = json.loads(cli.run("status", "--json", code=6))
    assert [bool(each["error"]) for each in found] == [False, True]
    assert "dev on here" in cli.run("status", "--plane", "here")


def test_the_proxys_address_alone_is_enough(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_ENVIRONMENTS")
    [plane] = cli.json("status", "--proxy", cli.environment.url)
    assert plane["environment"] == "dev"
    assert {"batched", "versions", "add_sub", "repeat"} <= set(by_name(plane["models"]))
    monkeypatch.setenv("DOMINO_INFERENCE_PROXY", cli.environment.url)
    assert "batched" in cli.run("status")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [(("status", "lte"), 5, "no model 'lte'"), (("status", "--environment", "prod"), 5, "no environment 'prod'"),
     (("status", "--plane", "her"), 5, "did you mean here"), (("status", "--proxy", "ftp://x"), 2, "no address"),
     (("status", "--proxy", "x", "--environment", "dev"), 2, "leave the environment")],
    ids=["model", "environment", "plane", "address", "both"],
)  # fmt: skip
def test_what_there_is_not_is_told(cli: Cli, words: tuple[str, ...], code: int, told: str) -> None:
    assert told in cli.run(*words, code=code)
