"""`/whoami`: as whom the proxy knows a caller."""

from pathlib import Path

import pytest
from tidegate_contracts.environments import WhoAmI

from ..rigs.issuer import Issuer
from ..rigs.tables import access_table
from .house import KEY, House, Reply, request, served

pytestmark = pytest.mark.anyio


async def who(here: House, key: str | None = None, **headers: str) -> Reply:
    return await here.ask(request("/whoami", b"", "GET", key, **headers))


async def test_a_token_tells_name_groups_and_issuer(tmp_path: Path, identity_provider: Issuer) -> None:
    token = identity_provider.token("ada", ["writers", "data-scientists"])  # whom no rule grants anything
    async with served(tmp_path, access=access_table([identity_provider])) as here:
        reply = await who(here, Authorization=f"Bearer {token}")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert reply.json() == {
        "environment": "test",
        "principal": "ada",
        "groups": ["data-scientists", "writers"],
        "source": identity_provider.url,
    }
    assert WhoAmI.model_validate_json(reply.body).principal == "ada"
    assert reply.headers["cache-control"] == "no-store"


async def test_an_api_key_tells_its_principal_in_either_header(here: House) -> None:
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
async def test_nobody_else_is_told_anything(here: House, headers: dict[str, str], problem: str) -> None:
    reply = await who(here, **headers)
    assert reply.problem == problem
    assert KEY.encode() not in reply.body


async def test_it_is_asked_with_get_and_of_no_server(here: House) -> None:
    posted = await here.ask(request("/whoami"))
    of_server = await here.ask(request("/servers/vision/whoami", method="GET"))
    assert (posted.status, posted.headers["allow"]) == (405, "GET")
    assert of_server.status == 404
