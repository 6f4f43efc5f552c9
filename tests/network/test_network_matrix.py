"""The matrix of allowed traffic is the table in docs/network.md, and every policy is needed for it."""

import copy
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from .cyclonus import Answer, ask
from .world import ENVIRONMENTS, ROOT, Object, Place, Question, places, policies, questions

ROW = re.compile(r"^\| (each|dev|prod) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)


def written_down() -> set[Question]:
    """Return the table in docs/network.md, for every pod that it means."""
    text = (ROOT / "docs/network.md").read_text("utf-8")
    found: set[Question] = set()
    for where, source, destination, ports in ROW.findall(text):
        for environment in ENVIRONMENTS if where == "each" else (where,):
            meant = [
                question
                for question in questions()
                if _is(question.source, source, environment) and _is(question.destination, destination, environment)
            ]
            allowed = [question for question in meant if ports == "any" or _port(question) in ports.split()]
            assert allowed, f"the row has no pods: {source} → {destination}"
            assert ports == "any" or {_port(question) for question in allowed} == set(ports.split())
            found.update(allowed)
    return found


def _is(place: Place, name: str, environment: str) -> bool:
    return place.name == name.removeprefix("own ") and place.environment in (environment, "")


def _port(question: Question) -> str:
    protocol, number = question.port
    return f"{number}" if protocol == "TCP" else f"{number}/{protocol}"


def readable(found: Iterable[Question]) -> list[str]:
    """Questions as people read them."""

    def end(place: Place) -> str:
        return f"{place.environment} {place.name}".strip()

    return sorted(f"{end(one.source)} → {end(one.destination)}: {_port(one)}" for one in found)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[Question, Answer]:
    return dict(zip(questions(), ask(policies(), questions(), tmp_path_factory.mktemp("cyclonus")), strict=True))


def test_the_allowed_connections_are_the_documented_ones(answers: dict[Question, Answer]) -> None:
    assert readable(one for one, answer in answers.items() if answer.allowed) == readable(written_down())


def test_either_side_alone_refuses_other_connections_between_our_pods(answers: dict[Question, Answer]) -> None:
    """If you delete one policy, that opens nothing between two environments."""
    half_open = [
        one
        for one, answer in answers.items()
        if one.source.environment and one.destination.environment and answer.egress != answer.ingress
    ]
    assert readable(half_open) == []


def test_every_pair_of_pods_was_evaluated_for_every_port(answers: dict[Question, Answer]) -> None:
    ours = [place for place in places() if place.environment]
    assert {(place.environment, place.name) for place in ours} == {
        (environment, name)
        for environment in ENVIRONMENTS
        for name in ("proxy", "preload server", "on-demand server", "other pod of the namespace")
    }
    text = (ROOT / "docs/network.md").read_text("utf-8").partition("## Pods in the table")[2]
    assert {place.name for place in places()} == {
        name.strip() for row in re.findall(r"^\| ([a-zA-Z ,-]+) \|", text, re.MULTILINE)[1:] for name in row.split(",")
    }
    for one in ours:
        for other in places():
            assert {question.port for question in answers if (question.source, question.destination) == (one, other)}
            assert {question.port for question in answers if (question.source, question.destination) == (other, one)}


def allowed_with(changed: list[Object], queries: list[Question], folder: Path) -> set[Question]:
    return {one for one, answer in zip(queries, ask(changed, queries, folder), strict=True) if answer.allowed}


def test_without_any_one_of_the_policies_the_matrix_is_another(tmp_path: Path) -> None:
    queries = [one for one in questions() if "prod" in (one.source.environment, one.destination.environment)]
    of_prod = [policy for policy in policies() if policy["metadata"]["namespace"] == "inference-prod"]
    assert len(of_prod) == len(policies()) / 2
    for number, policy in enumerate(of_prod):
        rest = [other for other in policies() if other != policy]
        assert allowed_with(rest, queries, tmp_path / str(number)) != written_down() & {*queries}, policy


@pytest.mark.parametrize("direction", ["Ingress", "Egress"])
def test_one_policy_that_opens_a_server_is_seen(direction: str, tmp_path: Path) -> None:
    """It opens nothing between our pods, because the other side still refuses."""
    meta = {"name": "hole", "namespace": "inference-dev"}
    spec = {"podSelector": {}, "policyTypes": [direction], direction.lower(): [{}]}
    hole = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}
    found = allowed_with([*policies(), hole], questions(), tmp_path) - written_down()
    assert found
    assert all(not (one.source.environment and one.destination.environment) for one in found)


def test_a_dev_proxy_with_prods_labels_reaches_no_pod_in_prod(tmp_path: Path) -> None:
    """Selectors of pods hold within their namespace: a label alone opens nothing."""
    changed = []
    for one in questions():
        if (one.source.environment, one.source.name, one.destination.environment) == ("dev", "proxy", "prod"):
            labels = {**copy.deepcopy(one.source.labels), "app.kubernetes.io/instance": "prod"}
            source = Place(one.source.name, "dev", one.source.namespace, labels, one.source.namespace_labels)
            changed.append(Question(source, one.destination, one.port))
    assert changed
    assert allowed_with(policies(), changed, tmp_path) == set()
