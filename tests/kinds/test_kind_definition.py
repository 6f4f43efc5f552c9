"""Another kind of server in a definition: an entry in `KINDS` is all it takes."""

from collections.abc import Iterator

import pytest

from stacks.definition.triton import TritonServer
from stacks.problems import DefinitionError

from .stack import toys_are_known, with_toys
from .toy.definition import ToyServer


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    with toys_are_known():
        yield


def test_a_server_is_of_the_class_of_its_kind_and_of_triton_where_it_says_none() -> None:
    servers = with_toys(toy={"greeting": "good day"}).stacks[0].platform.servers
    assert [type(server) for server in servers] == [TritonServer, TritonServer, ToyServer]
    assert isinstance(servers[2], ToyServer)
    assert servers[2].toy.greeting == "good day"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"toy": {"greeting": 3}}, "expected text, got the number 3"),
        ({"triton": {}}, 'unknown key "triton"'),
        ({"kind": "vllm"}, 'unknown kind "vllm"'),
    ],
)
def test_a_server_has_the_keys_of_its_own_kind_and_no_others(more: dict[str, object], said: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        with_toys(**more)
    (problem,) = refused.value.problems
    assert said in str(problem)
    assert "servers[toys]" in str(problem)
