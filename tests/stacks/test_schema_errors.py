"""What people are told when a definition does not fit the model."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from stacks.load import frozen, parse
from stacks.problems import DefinitionError, Position, Problem
from stacks.schema_errors import problems_from
from tests.counts import examples

Name = Annotated[str, Field(pattern="^[a-z]+$", json_schema_extra={"hint": "A name has small letters only."})]


class Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, validate_by_name=False
    )


class Gpu(Part):
    mig: str | None = None
    whole: int | None = Field(default=None, ge=1)
    strategy: Literal["mixed", "single"] = "mixed"

    @model_validator(mode="after")
    def one_of_them(self) -> Gpu:
        if (self.mig is None) == (self.whole is None):
            raise ValueError("say one of mig and whole")
        return self


class Pool(Part):
    name: Name
    gpu: Gpu | None = None
    replicas: int = Field(default=1, ge=1, le=10, json_schema_extra={"hint": "Ask for more GPUs first."})
    idle_seconds: float = 300.0
    strict_readiness: bool = False
    labels: dict[Name, str] = {}


class Server(Part):
    kind: Literal["triton"]
    name: str
    pools: tuple[Pool, ...]


class Efs(Part):
    kind: Literal["efs"]
    handle: str


class Nfs(Part):
    kind: Literal["nfs"]
    server: str
    path: str = Field(default="/", max_length=10, description="Where it is exported.")


class Whole(Part):
    servers: tuple[Server, ...] = ()
    tag: str = "x"
    data: dict[str, Annotated[Efs | Nfs, Field(discriminator="kind")]] = {}
    args: Annotated[tuple[str, ...], Field(max_length=2)] = ()
    sub: Whole | None = None
    called: Annotated[
        Annotated[Gpu, Tag("gpu")] | Annotated[Pool, Tag("pool")],
        Discriminator(lambda value: "pool" if isinstance(value, dict) and "name" in value else "gpu"),
    ] = Gpu(mig="x")
    net: ipaddress.IPv4Network | None = None


def problems_of(text: str, model: type[BaseModel] = Whole) -> list[Problem]:
    document = parse(text, "f.yaml")
    with pytest.raises(ValidationError) as caught:
        model.model_validate(frozen(document.tree))
    return problems_from(caught.value, document, model)


def said(text: str, model: type[BaseModel] = Whole) -> str:
    (problem,) = problems_of(text, model)
    return str(problem)


def pool(line: str) -> str:
    """A definition whose tenth line is the one to look at, in a pool."""
    return f"servers:\n  - kind: triton\n    name: ondemand\n    pools:\n      - name: small\n        {line}\n"


PLACE = "servers[ondemand].pools[small]"


def test_an_unknown_key_names_its_line_and_the_nearest_key() -> None:
    keys = "Keys here: name, gpu, replicas, idleSeconds, strictReadiness, labels."
    assert said(pool("replicsa: 3")) == (
        f'f.yaml:6:9: {PLACE}: unknown key "replicsa"\n    did you mean "replicas"? {keys}'
    )
    assert 'did you mean "idleSeconds"?' in said(pool("idle_seconds: 3"))
    assert "did you mean" not in said(pool("zzz: 3"))
    assert keys in said(pool("zzz: 3"))
    assert said("server: []\n").startswith('f.yaml:1:1: unknown key "server"\n    did you mean "servers"?')


def test_a_key_on_the_wrong_level_is_told_where_it_belongs() -> None:
    assert 'belongs under "gpu"' in said(pool("whole: 1"))
    assert f"belongs to {PLACE}" in said(pool("gpu: {mig: a, labels: 1}"))
    assert "belongs to the top level" in said("servers:\n  - {kind: triton, name: a, pools: [], args: []}\n")


def test_a_missing_key_is_reported_at_its_parent() -> None:
    assert said("servers:\n  - kind: triton\n    name: a\n") == 'f.yaml:2:5: servers[a]: "pools" is missing'
    assert said("servers:\n  - {kind: triton, name: a, pools: [{}]}\n") == (
        'f.yaml:2:37: servers[a].pools[0]: "name" is missing\n    "name": A name has small letters only.'
    )
    assert said("a: 1", type("Two", (Part,), {"__annotations__": {"a": int, "b": int}})) == (
        'f.yaml:1:1: "b" is missing'
    )


@pytest.mark.parametrize(
    ("line", "what", "do"),
    [
        ("replicas: three", 'expected a whole number, got the text "three"', "Ask for more"),
        ('replicas: "3"', 'expected a whole number, got the text "3"', "write it without quotes: 3"),
        ("replicas: 1.5", "expected a whole number, got the number 1.5", ""),
        ("replicas: true", "expected a whole number, got true", ""),
        ("replicas:", "expected a whole number, got nothing", "Write a value, or remove the line."),
        ("replicas: [1]", "expected a whole number, got a list of 1 entry", ""),
        ("replicas: [1, 2]", "expected a whole number, got a list of 2 entries", ""),
        ("replicas: {a: 1}", "expected a whole number, got a mapping", ""),
        ("replicas: 0", "must be at least 1, got the number 0", "Ask for more GPUs first."),
        ("replicas: 99", "must be at most 10, got the number 99", "Ask for more GPUs first."),
        ("idleSeconds: '3.5'", 'expected a number, got the text "3.5"', "write it without quotes: 3.5"),
        ("strictReadiness: yes", 'expected true or false, got the text "yes"', "write true"),
        ("strictReadiness: 'false'", 'expected true or false, got the text "false"', "without quotes: false"),
        ("labels: []", "expected a mapping (key: value), got an empty list", ""),
        ("labels: {a: 26.10}", "expected text, got the number 26.10", 'quote it: "26.10"'),
        ("labels: {a: 0x10}", "expected text, got the number 0x10", 'quote it: "0x10"'),
        ("labels: {a: true}", "expected text, got true", 'quote it: "true"'),
        ("labels: {A: x}", 'the key "A": it does not have the right form', "A name has small letters only."),
        ("gpu: {mig: a, strategy: mixd}", "expected one of: mixed, single, got the text", 'did you mean "mixed"?'),
        ("gpu: {mig: a, whole: 1}", "gpu: say one of mig and whole", ""),
        ("gpu: 1g.10gb", 'expected a mapping (key: value), got the text "1g.10gb"', ""),
    ],
)
def test_a_wrong_value_is_said_in_plain_words(line: str, what: str, do: str) -> None:
    text = said(pool(line))
    assert what in text
    assert do in text
    assert "Value error" not in text
    assert "Input" not in text
    assert text.startswith("f.yaml:6:")
    assert PLACE in text


def test_the_position_is_that_of_the_value_and_for_one_of_many_lines_its_key() -> None:
    assert said(pool("replicas:   three")).startswith("f.yaml:6:21:")
    assert said(pool("gpu: {mig: a, strategy: mixd}")).startswith(f"f.yaml:6:33: {PLACE}.gpu.strategy:")
    assert said(pool("labels:\n          a: 1")).startswith(f"f.yaml:7:14: {PLACE}.labels.a:")
    assert said(pool("gpu:\n          mig: a\n          whole: 1")).startswith(f"f.yaml:6:9: {PLACE}.gpu:")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("servers:\n  - {kind: triton, name: a, pools: [{name: Big}]}\n",
         '"Big" does not have the right form\n    A name has small letters only.'),
        ("args: [a, b, c]\n", "must have at most 2 entries, got a list of 3 entries"),
        ("data: {d: {kind: nfs, server: s, path: /234567890a}}\n", "must have at most 10 characters"),
        ("args: x\n", 'write it as a list: ["x"]'),
        ("net: nonsense\n", "f.yaml:1:6: net: "),
        ("sub: {sub: {sub: {tga: x}}}\n", 'f.yaml:1:19: sub.sub.sub: unknown key "tga"'),
        ("data: {d: {kind: efs, handle: 3}}\n", "f.yaml:1:31: data.d.handle: expected text"),
        ("data: {d: {kind: nfs, sever: x}}\n", 'did you mean "server"?'),
        ("called: {mig: 3}\n", "f.yaml:1:15: called.mig: expected text"),
        ("called: {name: a, replicsa: 3}\n", 'did you mean "replicas"?'),
        ("servers:\n  - {kind: triton, name: a, pool: []}\n", 'did you mean "pools"?'),  # one problem, not two
        ("sub: {tag: &n '3'}\nargs: *n\n", "f.yaml:2:7: args: expected a list"),
    ],
)  # fmt: skip
def test_lengths_forms_lists_and_parts_of_parts(text: str, what: str) -> None:
    assert what in said(text)


def test_an_unknown_kind_lists_the_kinds() -> None:
    assert said("data:\n  d: {kind: efss, handle: x}\n") == (
        'f.yaml:2:13: data.d.kind: unknown kind "efss"\n    did you mean "efs"? kind is one of: efs, nfs.'
    )
    assert said("data:\n  d: {handle: x}\n") == ('f.yaml:2:3: data.d: "kind" is missing\n    kind is one of: efs, nfs.')
    assert 'unknown key "knd"' in said("data: {d: {knd: efs}}\n")
    assert "expected a mapping" in said("data: {d: 3}\n")
    assert "unknown kind [1]" in said("data: {d: {kind: [1]}}\n")


def test_the_mistakes_of_a_whole_file_come_at_once_and_in_its_order() -> None:
    problems = problems_of("tag: 1\nargs: x\nservers: {}\nzzz: 1\ndata: {a: {kind: b}}\n")
    lines = [problem.where.line for problem in problems if isinstance(problem.where, Position)]
    assert lines == [1, 2, 3, 4, 5]
    assert str(DefinitionError(problems)).endswith("5 problems in f.yaml; nothing was written.")


def test_a_part_of_a_document_can_be_validated_by_itself() -> None:
    document = parse("x:\n  - name: one\n    replicas: 0\n", "f.yaml")
    with pytest.raises(ValidationError) as caught:
        Pool.model_validate(frozen(document.tree["x"][0]))
    (problem,) = problems_from(caught.value, document, Pool, base=("x", 0))
    assert str(problem).startswith("f.yaml:3:15: x[one].replicas: must be at least 1")


keys = st.sampled_from(
    [
        "servers", "tag", "data", "args", "sub", "called", "net", "kind", "name", "pools", "mig", "whole",
        "strategy", "replicas", "labels", "handle", "server", "path", "triton", "efs", "gpu", "[key]", "dict", "0",
    ]
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | keys | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(keys | st.text(max_size=5), below, max_size=4),
    max_leaves=25,
)


@examples(500)
@given(st.dictionaries(keys, values, max_size=6))
def test_any_error_of_any_tree_becomes_problems(tree: dict[str, Any]) -> None:
    try:
        Whole.model_validate(frozen(tree))
    except ValidationError as error:
        problems = problems_from(error, parse("tag: x\n", "f.yaml"), Whole)
        assert 1 <= len(problems) <= error.error_count()  # noqa: PT017 – text may as well be good
        for problem in problems:
            assert str(problem)
            assert isinstance(problem.where, Position)
