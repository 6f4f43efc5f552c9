import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.command import CommandError
from stacks.problems import DefinitionError, Position, Problem, escaped, listed, readable_path, shown

from .definition.examples import edited_at, problems


def test_a_problem_has_its_place_then_the_mistake_the_reason_and_the_remedy() -> None:
    problem = Problem(Position("a.yaml", 3, 5), "servers[x].gpu", "unknown key", "Because.\nTwice.", "Do that.")
    assert str(problem) == "a.yaml:3:5: servers[x].gpu: unknown key\n    Because.\n    Twice.\n    Do that."
    assert str(Problem("a.yaml", "", "there is no such file")) == "a.yaml: there is no such file"
    assert str(Problem(None, "", "no file at all")) == "no file at all"
    assert str(Problem("a.yaml", "images", "no digest", severity="advisory")) == "a.yaml: images: advisory: no digest"


def test_an_error_has_its_problems_in_the_order_of_the_file_and_counts_them() -> None:
    late, early = Problem(Position("a.yaml", 10, 1), "", "late"), Problem(Position("a.yaml", 9, 7), "", "early")
    whole, advisory = Problem("a.yaml", "", "whole"), Problem("b.yaml", "", "x", severity="advisory")
    error = DefinitionError([late, early, whole])
    assert error.problems == [whole, early, late]
    assert str(error).splitlines()[-1] == "3 problems in a.yaml. Correct the definition and run this again."
    assert DefinitionError([advisory]).summary() == "1 advisory in b.yaml"
    error = DefinitionError([whole, advisory, advisory], outcome="The lock is unchanged")
    assert str(error).endswith("1 problem and 2 advisories in 2 files. The lock is unchanged.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@given(st.text(alphabet=st.characters()))
def test_escaped_text_is_printable_and_plain_text_stays(text: str) -> None:
    assert escaped(text).isprintable()
    assert escaped(text) == text or not text.isprintable()


def test_values_are_shown_as_yaml_has_them_and_long_ones_are_shortened() -> None:
    texts = [shown(value) for value in (None, True, 3, 2.5, "a", [1], {"a": None})]
    assert texts == ["null", "true", "3", "2.5", '"a"', "[1]", '{"a": null}']
    assert len(shown("x" * 10_000)) < 100
    assert len(str(Problem(None, "", "x" * 10_000_000))) < 5_000
    assert shown(10**5_000) == "a very long number"
    assert (listed(["a", "b"]), listed(map(str, range(100)), most=3)) == ("a, b", "0, 1, 2, …")


def test_list_items_are_shown_by_name_if_they_have_one() -> None:
    tree = {"servers": [{"name": "ondemand", "pools": [{"gpu": 1}, {"name": "two words"}]}]}
    assert readable_path(tree, ("servers", 0, "pools", 0, "gpu")) == "servers[ondemand].pools[0].gpu"
    assert readable_path(tree, ("servers", 0, "pools", 1)) == "servers[ondemand].pools[1]"
    assert readable_path(tree, ("labels", "app.kubernetes.io/name")) == 'labels["app.kubernetes.io/name"]'
    assert readable_path(tree, ()) == ""


@pytest.mark.parametrize(
    "change",
    [
        {"proxy/auth/oidc/0/issuer": "https://me:hunter22secret@idp.example.com/realm"},
        {"servers/main/repository": {"url": "s3://me:hunter22secret@minio:9000/models"}},
        {"images/proxy/repository": "me:hunter22secret@registry.example.com/proxy"},
        {"datasets/models/server": "me:hunter22secret@nfs"},
        {"dataPlanes/east/registries": {"nvcr.io": "me:hunter22secret@mirror.example.com/x"}},
        {"proxy/logLevel": "https://me:hunter22secret@x/"},
        {"gate": {"probe": {"kind": "url", "url": "https://me:hunter22secret@x/"}}},
        {"pods/environment": {"HTTPS_PROXY": "me:hunter22secret@squid:3128"}},
    ],
)
def test_no_problem_shows_the_password_of_an_address(change: dict[str, Any]) -> None:
    found = problems(edited_at(change))
    assert found
    assert "hunter22" not in repr(found)


def test_no_error_of_a_command_shows_the_password_of_an_address() -> None:
    assert str(CommandError("https://me:hunter22secret@x/ does not answer")) == "https://•••@x/ does not answer"
