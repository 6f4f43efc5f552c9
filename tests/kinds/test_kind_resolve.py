"""Another kind of server is resolved: an entry in `KINDS` is all it takes."""

from components.pods import GRACE_SECONDS
from stacks.resolve import resolve
from stacks.resolve.servers import READY_MARGIN_SECONDS

from .stack import toys_are_known, with_toys
from .toy.components import ToyServerArgs
from .toy.resolve import EXIT_SECONDS


def test_a_server_becomes_the_arguments_of_its_kind() -> None:
    with toys_are_known():
        definition = with_toys(toy={"greeting": "good day"})
        server = resolve(definition.stacks[0], definition.lock).servers[-1]
    assert isinstance(server, ToyServerArgs)
    assert (server.kind, server.toy.greeting) == ("toy", "good day")
    assert server.image == "registry.example.com/toy:1.0"
    _, cold = sorted(server.pools, key=lambda pool: pool.name, reverse=True)
    assert [model.name for model in cold.models] == ["greeter"]
    assert cold.pulumi_timeouts is not None
    longest = GRACE_SECONDS + EXIT_SECONDS + cold.startup_seconds
    assert cold.pulumi_timeouts.updated == 2 * longest + READY_MARGIN_SECONDS
