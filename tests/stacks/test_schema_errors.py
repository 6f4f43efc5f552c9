"""What people are told when a definition does not fit the model."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stacks.definition import Platform
from stacks.load import frozen, parse
from stacks.problems import Position
from stacks.schema_errors import problems_from
from tests.cases import GONE
from tests.counts import examples
from tests.stacks.definition.examples import assert_refused, edited_at, only_problem

COLD = "servers/main/pools/cold"
PLACE = "servers[main].pools[cold]"
MODEL = "models/churn"
WARM = {"name": "warm", "loading": {"mode": "preload"}}


def said(edits: dict[str, Any]) -> str:
    """What is said of an edit, in whose texts "RAW " stands before what is not to be quoted."""
    return str(only_problem(edited_at(edits).replace("RAW ", "")))


def test_an_unknown_key_lists_the_keys_and_without_a_near_one_suggests_none() -> None:
    text = said({f"{COLD}/zzz": 3})
    assert f'{PLACE}: unknown key "zzz"' in text
    assert "Keys here: name, formerly, loading, placement, replicas," in text
    assert "did you mean" not in text


@pytest.mark.parametrize(
    ("edits", "advice"),
    [
        ({f"{COLD}/cpuLimit": "2"}, 'belongs under "resources": check the indentation'),
        ({f"{COLD}/resources": {"scratch": "1Gi"}}, f"belongs to {PLACE}: check the indentation"),
        ({f"{COLD}/resources": {"datasets": []}}, "belongs to the top level"),
        ({"servers/main": {"repository": {"dataset": "models"}, "pool": []}}, 'did you mean "pools"?'),  # and not two
        ({"domino": {"mesh": {"mode": "istio"}}}, "it belongs to the top level."),
        ({"proxy/rate_limit": {}}, 'did you mean "rateLimit"?'),
        ({"servers/main/openai": {"engine": "vllm"}}, "it belongs to kind: openai, and no kind is said here"),
        ({f"{COLD}/loading/pollSeconds": 5}, "it belongs to mode: preload, and mode is on-demand here"),
        ({f"{COLD}/placement": {"kind": "gpu", "strategy": "single"}}, "it belongs to kind: mig, and kind is gpu here"),
        # Of a kind that is mistyped
        ({"servers/main": {"knd": "openai", "repository": {"dataset": "m"}, "openai": {}, "pools": [WARM]}}, '"kind"?'),
    ],
)
def test_a_key_in_another_place_or_spelling_is_told_where_or_how_it_belongs(edits: dict[str, Any], advice: str) -> None:
    assert advice in said(edits)


def test_a_missing_key_is_reported_at_its_parent() -> None:
    assert_refused(edited_at({f"{COLD}/loading": GONE}), "- »name: cold", '"loading" is missing')
    text = said({f"{COLD}/autoscaling": {"kind": "cpu", "max": 2}})
    assert text.endswith(f'{PLACE}.autoscaling: "min" is missing\n    "min": Replicas at the least.')


@pytest.mark.parametrize(
    ("path", "value", "what", "do"),
    [
        (f"{COLD}/replicas", "three", 'expected a whole number, got the text "three"', "How many; 1 when"),
        (f"{COLD}/replicas", "3", 'expected a whole number, got the text "3"', "write it without quotes: 3"),
        (f"{COLD}/replicas", 1.5, "expected a whole number, got the number 1.5", ""),
        (f"{COLD}/replicas", True, "expected a whole number, got true", ""),
        ("network/reach/identity/ports", [None], "expected a whole number, got nothing", "or remove the line"),
        (f"{COLD}/replicas", [1], "expected a whole number, got a list of 1 entry", ""),
        (f"{COLD}/replicas", [1, 2], "expected a whole number, got a list of 2 entries", ""),
        (f"{COLD}/replicas", {"a": 1}, "expected a whole number, got a mapping", ""),
        (f"{COLD}/replicas", -1, "must be at least 0, got the number -1", "How many"),
        (f"{COLD}/replicas", 9_999, "must be at most 1000, got the number 9999", ""),
        (
            "environments/prod/promotion",
            {"from": "dev", "soakHours": "3.5"},
            'expected a number, got the text "3.5"',
            "write it without quotes: 3.5",
        ),
        (f"{MODEL}/pinned", "yes", 'expected true or false, got the text "yes"', "write true"),
        (f"{MODEL}/pinned", "false", 'expected true or false, got the text "false"', "without quotes: false"),
        (f"{COLD}/nodeSelector", [], "expected a mapping (key: value), got an empty list", ""),
        (f"{COLD}/nodeSelector", {"a": "RAW 26.10"}, "expected text, got the number 26.10", 'quote it: "26.10"'),
        (f"{COLD}/nodeSelector", {"a": "RAW 0x10"}, "expected text, got the number 0x10", 'quote it: "0x10"'),
        (f"{COLD}/nodeSelector", {"a": True}, "expected text, got true", 'quote it: "true"'),
        (f"{COLD}/resources", {"cpu": 2}, "expected text, got the number 2", 'quote it: "2"'),
        # A hint that leads into the next mistake is none.
        (
            f"{COLD}/resources",
            {"memory": 24},
            "got the number 24",
            "quotes alone do not help: '24' is 24 bytes: is a unit",
        ),
        (f"{COLD}/nodeSelector", {"a": 1.5e300}, "expected text", "a Kubernetes label value"),
        (f"{COLD}/nodeSelector", {"a b": "x"}, 'the key "a b": it does not have the right form', "label key, such as"),
        ("proxy/logLevel", "debgu", "expected one of: debug, info, warning, error, got the text", 'mean "debug"?'),
        ("proxy/resources", "1g.10gb", 'expected a mapping (key: value), got the text "1g.10gb"', ""),
        ("images/proxy/name", "Big", '"Big" does not have the right form', "lower-case letters, digits and dashes"),
        (f"{COLD}/priorityClass", "a" * 254, "must have at most 253 characters", ""),
        ("servers/main/triton", {"extraArguments": "--a=b"}, "", 'write it as a list: ["--a=b"]'),
        ("network/callers/ingress/cidr", "nonsense", "'nonsense' does not appear to be an IPv4 or IPv6 network", ""),
        (
            "proxy/exposure",
            {"kind": "ingres"},
            'unknown kind "ingres"',
            'did you mean "ingress"? kind is one of: cluster-ip, ingress, http-route, load-balancer.',
        ),
        ("proxy/exposure", {"host": "i"}, '"kind" is missing', "kind is one of: cluster-ip"),
        ("proxy/exposure", {"knd": "ingress"}, 'unknown key "knd"', 'did you mean "kind"?'),
        ("proxy/exposure", {"kind": [1]}, "unknown kind [1]", ""),
        ("proxy/exposure", 3, "expected a mapping", ""),
        ("servers/main/repository", {"url": 3}, "repository.url: expected text", ""),
        ("servers/main/repository", {"dataset": "models", "pth": "x"}, 'unknown key "pth"', 'did you mean "path"?'),
    ],
)
def test_a_wrong_value_is_said_in_plain_words(path: str, value: Any, what: str, do: str) -> None:
    text = said({path: value})
    assert what in text
    assert do in text
    assert "Value error" not in text
    assert "Input" not in text


keys = st.sampled_from(
    [
        "images",
        "servers",
        "pools",
        "loading",
        "mode",
        "kind",
        "name",
        "proxy",
        "exposure",
        "access",
        "models",
        "alias",
        "versions",
        "network",
        "callers",
        "cidr",
        "labels",
        "placement",
        "profile",
        "mig",
        "repository",
        "url",
        "[key]",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | keys | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(keys | st.text(max_size=5), below, max_size=4),
    max_leaves=25,
)


@examples(500)
@given(st.dictionaries(keys, values, max_size=6))
def test_any_error_of_any_tree_becomes_problems(tree: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        Platform.model_validate(frozen({**tree, "tag": 1}))
    problems = problems_from(caught.value, parse("tag: x\n", "f.yaml"), Platform)
    assert 1 <= len(problems) <= caught.value.error_count()
    for problem in problems:
        assert str(problem)
        assert isinstance(problem.where, Position)
