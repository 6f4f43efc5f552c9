"""A small valid definition, ways to edit it, and ways to check the resulting problems."""

import copy
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest
import yaml
from pydantic import BaseModel

from stacks import definition, rules
from stacks.definition.base import Conditional
from stacks.images_lock import ImagesLock
from stacks.load import parse
from stacks.problems import DefinitionError, Position, Problem
from stacks.stack import Definition
from stacks.validate import validate
from tests.cases import GONE

Rule = Callable[..., Any]

FILE: Final = "f.yaml"
PRODUCT: Final = "NVIDIA-A100-SXM4-80GB"


BASE: Final = f"""
images:
- {{name: triton, repository: nvcr.io/nvidia/tritonserver, tag: 26.08-py3}}
- {{name: proxy, repository: registry.example.com/proxy, tag: v1}}
- {{name: eviction-policy, repository: registry.example.com/policy, tag: v2}}
datasets:
- {{name: models, kind: nfs, server: nfs.example.com, path: /models/dev, writers: [data-scientists]}}
servers:
- name: main
  repository: {{dataset: models}}
  pools:
  - name: warm
    loading: {{mode: preload}}
    placement: {{kind: mig, profile: 2g.20gb, product: {PRODUCT}}}
  - name: cold
    loading: {{mode: on-demand, idleSeconds: 300}}
    placement: {{kind: mig, profile: 1g.10gb, product: {PRODUCT}}}
proxy:
  auth:
    oidc:
    - {{issuer: 'https://idp.example.com/realm', audiences: [proxy]}}
  access:
  - {{name: callers, groups: [callers]}}
models:
- {{name: churn, server: main, pool: warm, footprint: 2Gi}}
- {{name: ocr, server: main, pool: cold, footprint: 3Gi}}
network:
  callers:
  - {{name: ingress, cidr: 10.1.0.0/16}}
  reach:
  - {{name: identity, by: [proxy], cidr: 10.2.0.0/16}}
  apiServer: {{addresses: [10.3.0.0/28]}}
environments:
- name: dev
- name: prod
  production: true
  datasets:
  - {{name: models, path: /models/prod, writers: [deployers]}}
dataPlanes:
- name: lab
  environments: [dev]
  gpus:
  - {{nodes: 1, product: {PRODUCT}, perNode: 1, mig: {{slices: {{2g.20gb: 1, 1g.10gb: 2}}}}}}
- name: east
  environments: [prod]
  gpus:
  - {{nodes: 2, product: {PRODUCT}, perNode: 1, mig: {{slices: {{2g.20gb: 1, 1g.10gb: 2}}}}}}
""".lstrip()
IMAGES: Final = (
    "nvcr.io/nvidia/tritonserver:26.08-py3",
    "registry.example.com/proxy:v1",
    "registry.example.com/policy:v2",
)


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def lock_tree() -> dict[str, Any]:
    return {"images": [{"image": image, "digest": digest(number)} for number, image in enumerate(IMAGES)]}


def edited_at(edits: Mapping[str, Any]) -> str:
    """The base definition with some values changed.

    A path names keys and list items in a row, joined by `/`: `servers/main/pools/cold/replicas`. An item that is not
    there is added at the end of its list, and a mapping that is not there is made.
    """
    tree = yaml.safe_load(BASE)
    for path, value in edits.items():
        edit(tree, path.split("/"), value)
    return dumped(tree)


def dumped(tree: Any) -> str:
    return yaml.dump(tree, Dumper=_OneValueALine, sort_keys=False, allow_unicode=True, width=10_000)


class _OneValueALine(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Write everything out: a position then has one line only."""
        return True


def edit(tree: Any, path: list[str], value: Any) -> None:
    for step in path[:-1]:
        tree = _below(tree, step)
    step = path[-1]
    if isinstance(tree, dict):
        if value is GONE:
            del tree[step]
        else:
            tree[step] = copy.deepcopy(value)
        return
    index = _index(tree, step)
    if value is GONE:
        assert index is not None, path
        del tree[index]
        return
    named = {"name": step, **value} if isinstance(value, dict) and not step.isdigit() else value
    at = len(tree) if index is None else index
    tree[at : at + 1] = [copy.deepcopy(named)]


def _below(tree: Any, step: str) -> Any:
    if isinstance(tree, dict):
        return tree.setdefault(step, [] if step in _LISTS else {})
    index = _index(tree, step)
    if index is None:
        tree.append({"name": step})
        index = len(tree) - 1
    return tree[index]


_LISTS: Final = frozenset(
    ["models", "servers", "pools", "datasets", "images", "access", "callers", "reach", "pullSecrets"]
)


def _index(items: list[Any], step: str) -> int | None:
    if step.isdigit():
        return int(step) if int(step) < len(items) else None
    names = [item.get("name") if isinstance(item, dict) else None for item in items]
    return names.index(step) if step in names else None


def valid(text: str) -> Definition:
    tree = lock_tree()
    return validate(parse(text, FILE), ImagesLock.model_validate({"images": tuple(tree["images"])}))


def problems(text: str) -> list[Problem]:
    """Return all problems of a text. It raises only DefinitionError."""
    try:
        return list(valid(text).advisories)
    except DefinitionError as error:
        return error.problems


def only_problem(text: str) -> Problem:
    found = problems(text)
    assert len(found) == 1, "\n".join(map(str, found)) or "nothing is wrong"
    return found[0]


def stands_at(problem: Problem, text: str, at: str) -> bool:
    """Whether a problem points at the place that `at` shows: a piece of a line, with » before the place."""
    assert isinstance(problem.where, Position), problem
    assert problem.where.file == FILE
    line = text.splitlines()[problem.where.line - 1]
    before, _, after = at.partition("»")
    return line[: problem.where.column - 1].endswith(before) and line[problem.where.column - 1 :].startswith(after)


def assert_refused(text: str, at: str, what: str = "", *, number: int = 1) -> Problem:
    return assert_found(problems(text), text, at, what, number=number)


def assert_found(
    found: list[Problem], text: str, at: str, what: str, *, number: int = 1, severity: str = "error"
) -> Problem:
    """Check the number of problems, and return the one with `what` at the place that `at` shows."""
    messages = "\n".join(map(str, found)) or "nothing is wrong"
    assert len(found) == number, messages
    fitting = [problem for problem in found if what in "\n".join((problem.what, problem.why, problem.do))]
    assert any(stands_at(problem, text, at) for problem in fitting), f"no problem at {at!r} has {what!r}:\n{messages}"
    assert {problem.severity for problem in found} == {severity}
    for problem in found:
        assert_complete(problem)
    return fitting[0]


def assert_complete(problem: Problem) -> None:
    """Check what every message owes its reader: a line, a path, plain words, and no trace of the machinery."""
    assert isinstance(problem.where, Position)
    assert problem.what
    assert "\n" not in problem.what
    text = str(problem)
    for inside in ("Traceback", "pydantic", "ValidationError", "type=", "input_value", "Value error"):
        assert inside not in text
    assert len(text) < 2_500


def found_by(rule: Rule, text: str, monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    with monkeypatch.context() as patch:
        for kind in ("HEADER_RULES", "STACK_RULES", "DEFINITION_RULES"):
            patch.setattr(rules, kind, tuple(each for each in getattr(rules, kind) if each is rule))
        return problems(text)


def sections() -> Iterator[type[BaseModel]]:
    """Every class of the definition, by the module that declares it."""
    names = ["", *(f".{module.name}" for module in pkgutil.iter_modules(definition.__path__))]
    for module in (importlib.import_module(f"{definition.__name__}{name}") for name in names):
        for part in vars(module).values():
            if isinstance(part, type) and issubclass(part, BaseModel) and part.__module__ == module.__name__:
                yield part


def own_rules(part: type[BaseModel]) -> Iterator[str]:
    """The names of a class's own validators and conditions."""
    if part is not Conditional:
        own = part.__pydantic_decorators__.model_validators
        yield from (f"{part.__name__}.{name}" for name in own if name in vars(part))
        conditions = part.own_conditions() if issubclass(part, Conditional) else ()
        yield from (f"{part.__name__}.{each.name}" for each in conditions)
