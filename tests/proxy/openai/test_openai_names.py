"""Clients' other names of models, with slashes and colons, are equal to the model's own name."""

import asyncio
import json
import tempfile
from pathlib import Path
from urllib.parse import quote

from hypothesis import example, given
from hypothesis import strategies as st
from tidegate_contracts.openai import LONGEST_SERVED_NAME, SERVED_NAME_PATTERN, is_served_name

from tests.counts import examples

from ..http.running_proxy import RunningProxy, request, served
from ..rigs.tables import CALLER
from .tables import SERVER, access, model, table
from .test_openai_calls import CHAT, body, chat, error

OWN = "plain"
ACCESS = access((CALLER, [OWN], ["infer", "inspect"]))
NAMES = st.from_regex(SERVED_NAME_PATTERN, fullmatch=True).filter(is_served_name)
SPELLED = ["meta/llama-3.1-8b-instruct", "llama3:8b", "hf.co/org/model_1.GGUF:Q4_K_M", "models/infer", "v1/models"]


@examples(40)
@given(st.lists(NAMES.filter(lambda name: name not in (OWN, "hidden")), min_size=1, max_size=12, unique=True))
@example([*SPELLED, "a" * LONGEST_SERVED_NAME, "a/" * 127 + "a"])
def test_a_model_is_called_and_listed_by_each_of_its_names(names: list[str]) -> None:
    async def ask_all() -> None:
        models = [model(OWN, served_names=tuple(names)), model("hidden", served_names=("hidden/one",))]
        with tempfile.TemporaryDirectory() as folder:
            async with served(Path(folder), table=table(models), access=ACCESS) as here:
                for name in names:
                    await ask(here, name)
                listed = (await here.ask(request("/v1/models", method="GET"))).json()["data"]
                assert [each["id"] for each in listed] == [OWN, *names]
                assert here.proxy.shared.meter.calls.keys() == {(SERVER, OWN, "http")}, "counted by its own name"
                for path in ("/v1/models/hidden/one", "/models/hidden%2Fone"):
                    assert (await here.ask(request(path, method="GET"))).status == 404
                assert error(await here.ask(chat("hidden/one"))) == (404, "invalid_request_error", "model_not_found")

    asyncio.run(ask_all())


async def ask(here: RunningProxy, name: str) -> None:
    for sent in (body(name), body(name).replace(b"/", b"\\/")):
        for path in (CHAT, f"/servers/{SERVER}{CHAT}"):
            reply = await here.ask(request(path, sent))
            assert reply.status == 200
            assert json.loads(here.replica.requests[-1].body) == json.loads(body(OWN)), "all that its engine knows"
    encoded = quote(name, safe="")
    for spelled in (name, encoded, encoded.replace("%2F", "%2f")):
        for prefix in ("", f"/servers/{SERVER}"):
            found = (await here.ask(request(f"{prefix}/v1/models/{spelled}", method="GET"))).json()
            assert (found["id"], found["owned_by"]) == (name, SERVER)
            [place] = (await here.ask(request(f"{prefix}/models/{spelled}", method="GET"))).json()["models"]
            assert place["model"] == OWN


def test_an_invalid_name_is_an_unknown_address(tmp_path: Path) -> None:
    async def ask_all() -> None:
        async with served(tmp_path, table=table([model(OWN)]), access=ACCESS) as here:
            for name in ("a//b", "plain/", "a/../plain", "..%2Fplain", "%2Fplain", "a%00", "-a", "a" * 256):
                for path in (f"/v1/models/{name}", f"/models/{name}"):
                    assert (await here.ask(request(path, method="GET"))).status == 404, path

    asyncio.run(ask_all())
