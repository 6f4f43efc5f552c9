from pathlib import Path

from tidegate_contracts.environments import Environments

from stacks.problems import _MOST_ALIKE, Position, Problem, advisory_text

from .conftest import Call


def test_a_good_definition_is_one_line_and_similar_advisories_one_paragraph(call: Call, definition: Path) -> None:
    ended = call("check", definition, code=0)
    assert ended.out.startswith(f"{definition}: ok – 2 stacks (dev-lab, prod-east), 1 server, 1 model\n")
    assert (ended.out.count("has no digest"), ended.out.count("tidegate pin")) == (6, 1)
    assert "severities:" not in ended.out, "it is advisory already"


def test_long_paragraphs_are_cut_and_counted() -> None:
    found = [Problem(Position("f", n, 1), "", f"no {n}", "why", "do", "advisory") for n in range(_MOST_ALIKE + 2)]
    assert "… and 2 more like these" in advisory_text(found)


def test_environments_loads_no_engine(run: Call, definition: Path) -> None:
    ended = run("environments", definition, PYTHONPROFILEIMPORTTIME="1")
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in ended.err.splitlines()}
    assert ended.code == 0
    assert {"stacks", "pydantic"} <= imported
    assert not imported & {"components", "grpc", "kubernetes", "mlflow", "numpy", "pulumi", "pulumi_kubernetes"}


# ---- settings of clients ----


def test_environments_prints_the_settings_of_clients_and_nothing_else(call: Call, definition: Path) -> None:
    ended = call("environments", definition)
    assert (ended.code, ended.err) == (0, "")
    clients = Environments.model_validate_json(ended.out)
    planes = {item.name: [plane.name for plane in item.planes] for item in clients.environments}
    assert planes == {"dev": ["lab"], "prod": ["east"]}
    assert "null" not in ended.out
