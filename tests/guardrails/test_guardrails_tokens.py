from pathlib import Path
from typing import Any, get_args

import pytest
from tidegate_contracts import dynamo

from policies.guardrails.dynamo import is_discovery
from stacks.definition.openai import DynamoSettings
from tests.cases import read_cases
from tests.components.objects import named

from .stacks import findings, shared_frontends
from .test_guardrails_every import edited

CASES = read_cases(Path(__file__).with_name("tokens.yaml"))


@pytest.mark.parametrize("case", [pytest.param(case, id=case["what"]) for case in CASES])
def test_permissions_beyond_it_are_found(case: dict[str, Any]) -> None:
    assert sorted({f"{one.rule} {one.object}" for one in findings(edited(case))}) == case["found"]


def test_the_role_is_of_one_namespace() -> None:
    role = named(shared_frontends(), "Role", "openai-agents")
    assert is_discovery(role)
    assert not is_discovery({**role, "kind": "ClusterRole"})
    assert role["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        {
            "apiGroups": ["nvidia.com"],
            "resources": ["dynamoworkermetadatas"],
            "verbs": ["list", "watch", "create", "patch"],
        },
    ]


def test_every_worker_of_a_definition_is_known() -> None:
    workers = get_args(DynamoSettings.model_fields["worker"].annotation)
    assert {*dynamo.MODULES} == {dynamo.FRONTEND, *(f"dynamo.{each}" for each in workers)}
