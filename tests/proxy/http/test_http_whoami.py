"""`/whoami`: as whom the proxy knows a caller."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tidegate_contracts.environments import WhoAmI

from ..rigs.issuer import Issuer, issuer
from ..rigs.tables import access_table
from .house import KEY, House, Reply, house, request

pytestmark = pytest.mark.anyio
NOBODY_HOME = 1
"""A port that nobody listens on: who somebody is has nothing to do with servers."""


@pytest.fixture(scope="module")
def provider() -> Iterator[Issuer]:
    with issuer("ES256") as running:
        yield running


async def who(here: House, key: str | None = None, **headers: str) -> Reply:
    return await here.ask(request("/whoami", b"", "GET", key, **headers))


async def test_a_token_tells_name_groups_and_issuer(tmp_path: Path, provider: Issuer) -> None:
    token = provider.token("ada", ["writers", "data-scientists"])  # whom no rule grants anything
    async with house(tmp_path, NOBODY_HOME, access=access_table([provider])) as here:
        reply = await who(here, Authorization=f"Bearer {token}")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert reply.json() == {
        "environment": "test",
        "principal": "ada",
        "groups": ["data-scientists", "writers"],
        "source": provider.url,
    }
    assert WhoAmI.model_validate_json(reply.body).principal == "ada"
    assert reply.headers["cache-control"] == "no-store"


async def test_an_api_key_tells_its_principal_in_either_header(tmp_path: Path) -> None:
    async with house(tmp_path, NOBODY_HOME) as here:
        replies = [await who(here, KEY), await who(here, Authorization=f"Bearer {KEY}")]
    expected = {"environment": "test", "principal": "ci", "groups": [], "source": "api-keys"}
    assert [reply.json() for reply in replies] == [expected, expected]


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({}, "unauthenticated"),
        ({"Authorization": "Bearer tgk_wrong"}, "unauthenticated"),
        ({"Authorization": f"Bearer {KEY}x"}, "unauthenticated"),
        ({"X_API_Key": KEY, "Authorization": f"Bearer {KEY}"}, "malformed"),
    ],
    ids=["nothing", "a-wrong-key", "a-longer-key", "two"],
)
async def test_nobody_else_is_told_anything(tmp_path: Path, headers: dict[str, str], problem: str) -> None:
    async with house(tmp_path, NOBODY_HOME) as here:
        reply = await who(here, **headers)
    assert reply.problem == problem
    assert KEY.encode() not in reply.body


async def test_it_is_asked_with_get_and_of_no_server(tmp_path: Path) -> None:
    async with house(tmp_path, NOBODY_HOME) as here:
        posted = await here.ask(request("/whoami"))
        of_server = await here.ask(request("/servers/vision/whoami", method="GET"))
    assert (posted.status, posted.headers["allow"]) == (405, "GET")
    assert of_server.status == 404
