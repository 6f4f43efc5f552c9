"""Every rule of the definition: values that break it are refused, or there can be none.

A rule that is new has no answer in `broken_values.yaml`, and the first test says so.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from pydantic import AfterValidator, BaseModel

from charts import CHART, values_of
from charts.check import helm, rendered
from charts.folder import scenarios
from charts.read_back import rule_problems
from charts.values_file import values_text
from charts.values_schema import values_schema
from stacks import rules
from stacks.definition.base import Without
from stacks.load import parse
from stacks.problems import DefinitionError, Problem
from stacks.resolve import resolve
from tests.counts import examples
from tests.stacks.definition.examples import own_rules, sections
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree
from tests.strategies.renaming import renamed

from .broken_values import BASE, NEVER, REFUSED, STOPPED, Values, edited

VALIDATOR = jsonschema.Draft7Validator(values_schema())
CHART_VALUES = (CHART / "values.yaml").read_text("utf-8")


def checks_of(kind: Any) -> Iterator[Any]:
    """What stands beside a type, at any depth, and checks it in code."""
    for each in getattr(kind, "__metadata__", ()):
        if isinstance(each, AfterValidator | Without):
            yield each
        for inner in getattr(each, "metadata", ()):
            yield from checks_of(inner)
    for inner in get_args(kind):
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            yield from checks_of(inner)


def every_rule() -> Iterator[str]:
    for rule in (*rules.HEADER_RULES, *rules.STACK_RULES, *rules.DEFINITION_RULES):
        yield rule.function.__name__
    for part in sections():
        yield from own_rules(part)
        hints = get_type_hints(part, include_extras=True)
        for name in inspect.get_annotations(part):
            if name in part.model_fields:
                for each in checks_of(hints[name]):
                    yield each.why if isinstance(each, Without) else each.func.__name__


def test_every_answer_has_a_rule() -> None:
    assert {*REFUSED, *(rule for rules in NEVER.values() for rule in rules)} <= {*every_rule()}


def said(values: Values) -> tuple[list[Problem], list[Problem]]:
    """What `make check-chart` says of values: errors, advisories."""
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    try:
        found, _ = rendered(text, "values.yaml", CHART)
    except DefinitionError as error:
        return list(error.problems), []
    return [], found


def test_nothing_is_said_about_the_values_that_are_edited_here() -> None:
    VALIDATOR.validate(BASE)
    assert said(BASE) == ([], [])


def test_a_server_of_another_name_reaches_its_object_store_by_the_name_of_its_objects() -> None:
    reach = [
        {"name": "identity", "by": ["proxy"], "cidr": "10.0.0.0/8"},
        {"name": "store", "server": "bucket", "cidr": "10.1.0.0/16"},
    ]
    assert said(edited({"servers[bucket].called": "store", "network.reach": reach})) == ([], [])


@pytest.mark.parametrize("rule", REFUSED)
def test_values_that_break_a_rule_are_refused_where_it_says(rule: str) -> None:
    answer = REFUSED[rule]
    values = edited(answer["change"])
    assert VALIDATOR.is_valid(values) == (answer["by"] == "check-chart")
    errors, advisories = said(values)
    found = errors or advisories
    (problem,) = [each for each in found if each.rule == rule.replace("_", "-")] or found
    assert answer["says"] in f"{problem.what} {problem.why} {problem.do}"
    assert answer["at"] in problem.path
    assert str(problem.where).startswith("values.yaml:")


def in_two_pools(blue: dict[str, Any], green: dict[str, Any]) -> Values:
    """Values with a model of an engine in two pools, with what each says of it."""
    pools = [
        {
            "name": name,
            "loading": {"mode": "preload"},
            "placement": {"kind": "gpu"},
            "models": [{"name": "llama", **said}],
        }
        for name, said in (("blue", blue), ("green", green))
    ]
    return edited({"servers[chat].pools": pools})


def shares(version: int, weight: int) -> dict[str, Any]:
    return {"versions": [{"version": version, "weight": weight}]}


def test_a_model_whose_versions_have_pools_of_their_own_stands_in_each() -> None:
    assert said(in_two_pools(shares(3, 80), shares(4, 20))) == ([], [])
    assert said(in_two_pools(shares(3, 100), {**shares(4, 0), "mirror": {"version": 4, "percent": 5}})) == ([], [])


@pytest.mark.parametrize(
    ("green", "says", "at"),
    [
        ({}, "stands twice in models", "pools[green].models[llama].name"),
        (shares(4, 10), "the weights of versions must sum to 100, and 80 + 10 is 90", "pools[blue].models[llama]"),
        (shares(3, 20), "version 3 stands twice in versions", "pools[blue].models[llama]"),
        ({**shares(4, 20), "mirror": {"version": 5, "percent": 5}}, "version 5", "pools[green].models[llama].mirror"),
    ],
)
def test_what_two_pools_say_of_a_model_is_judged_together(green: dict[str, Any], says: str, at: str) -> None:
    *_, problem = said(in_two_pools(shares(3, 80), green))[0]
    assert says in problem.what
    assert at in problem.path


@settings(
    parent=examples(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    phases=[Phase.explicit, Phase.generate],
)
@given(definition_trees())
def test_no_rule_refuses_the_values_of_a_definition_that_is_right(tree: Tree) -> None:
    found = read_tree(tree)
    for stack in (*found.stacks, *read_tree(renamed(tree)).stacks):
        document = parse(values_text(values_of(resolve(stack, found.lock)), "Values."), "values.yaml")
        assert [problem for problem in rule_problems(document, CHART_VALUES) if problem.severity == "error"] == []


def test_null_takes_a_value_away_also_within_lists() -> None:
    """Whatever the schema takes is judged without a defect of ours."""
    for name, text in scenarios().items():
        values = yaml.safe_load(text)
        for server in values.get("servers", []):
            server["triton"] = None
            for pool in server["pools"]:
                pool["models"] = None
        rule_problems(parse(yaml.safe_dump(values), name), CHART_VALUES)


@pytest.mark.parametrize("what", STOPPED)
def test_helm_alone_stops_at_what_would_do_harm_even_without_the_schema(what: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(edited(STOPPED[what]["change"])), "utf-8")
    done = helm(["template", "release", CHART, "--skip-schema-validation", "--values", file])
    assert done.returncode != 0
    assert STOPPED[what]["says"] in done.stderr


def test_a_claim_that_exists_already_may_be_read() -> None:
    assert said(edited({"servers[main].repository.claim": "given"})) == ([], [])


def test_a_principal_service_is_reached_where_the_values_say_so_and_not_by_its_name() -> None:
    """Resolving writes the way to a Service into the values; who names another by hand has to write it, too."""
    service = {
        "proxy.auth": {"dominoPrincipal": True},
        "proxy.access": [{"name": "all", "principals": ["ci"]}],
        "domino": {"principalUrl": "https://identity.domino-edge.svc/principal"},
    }
    way = {
        "name": "domino-principal",
        "by": ["proxy"],
        "namespaceLabels": {"kubernetes.io/metadata.name": "domino-edge"},
    }
    store = BASE["network"]["reach"][1]
    (problem,) = said(edited({**service, "network.reach": [store]}))[0]
    assert "cannot ask Domino who callers are" in problem.what
    assert said(edited({**service, "network.reach": [store, way]})) == ([], [])


def test_what_only_the_charts_own_values_say_is_judged_with_the_file() -> None:
    """Helm lays the file over them: here the dataset of the example is what the server reads."""
    values = {key: part for key, part in BASE.items() if key not in ("datasets", "claims")}
    assert [problem.what for problem in said(values)[0]] == [
        'dataset "models" is a hostPath, and environment "prod" is not local'
    ]
