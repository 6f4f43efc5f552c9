import re
import urllib.parse

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tidegate_proxy import kinds
from tidegate_proxy.targets import Target, plain_path

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}")
names = st.from_regex(NAME, fullmatch=True).filter(lambda name: name != "stats")
verbs = st.sampled_from(["infer", "generate", "generate_stream", "ready", "config", "stats", "metadata"])
versions = st.none() | st.integers(1, 10**12).map(str)


def parse_path(url: bytes) -> Target | None:
    return kinds.parse_path(plain_path(url))


CONTROL = [
    "/v2/repository/index",
    "/v2/repository/models/m/load",
    "/v2/repository/models/m/unload",
    "/v2/models/m/trace/setting",
    "/v2/trace/setting",
    "/v2/logging",
    "/v2/systemsharedmemory/status",
    "/v2/cudasharedmemory/region/r/register",
    "/v2/models/stats",
    "/metrics",
    "/invocations",
]


@given(names, verbs, versions, st.none() | names)
def test_every_call_is_understood_as_it_is_spelled(
    model: str, verb: str, version: str | None, server: str | None
) -> None:
    path = f"/servers/{server}" if server else ""
    path += f"/v2/models/{model}" + (f"/versions/{version}" if version else "")
    path += "" if verb == "metadata" else f"/{verb}"
    target = parse_path(path.encode())
    assert target is not None
    assert (target.verb, target.server, target.model, target.version) == (verb, server, model, version)
    assert kinds.KINDS["triton"].path(target, version) == path.removeprefix(f"/servers/{server}").encode()
    assert target.action == ("infer" if verb in ("infer", "generate", "generate_stream") else "inspect")


@given(names, st.data())
def test_needless_encoding_changes_nothing(model: str, data: st.DataObject) -> None:
    spelled = "".join(data.draw(st.sampled_from([sign, f"%{ord(sign):02x}", f"%{ord(sign):02X}"])) for sign in model)
    target = parse_path(f"/v2/models/{spelled}/infer?x=%2e%2e".encode())
    assert target is not None
    assert target.model == model
    assert target == parse_path(f"/v2/models/{urllib.parse.quote(model)}/infer".encode())


TRICKS = [
    "/v2/models/../repository/index",
    "/v2/models/%2e%2e/infer",
    "/v2/models/%2E./infer",
    "/v2/models/./infer",
    "/v2/models/m%2finfer",
    "/v2/models/m%2Fload/infer",
    "/v2//models/m/infer",
    "//v2/models/m/infer",
    "/v2/models/m/infer/",
    "/v2/models/m;x=1/infer",
    "/v2/models/m%00/infer",
    "/v2/models/m%0d%0aX:1/infer",
    "/v2/models/%c0%ae%c0%ae/infer",
    "/v2/models/m\xff/infer",
    "/V2/models/m/infer",
    "/v2/models/m/INFER",
    "/v2/models/m/versions/01/infer",
    "/v2/models/m/versions/0/infer",
    "/v2/models/m/versions/-1/infer",
    "/v2/models/m/versions/1e3/infer",
    "/v2/models/%252e%252e/infer",
    "http://other/v2/models/m/infer",
    "*",
    "/v2/models//infer",
    "/v2/models/-m/infer",
    "/servers/../v2/models/m/infer",
    "/v2/models/m#/infer",
    f"/v2/models/{'m' * 128}/infer",
    "/v2/models/m/../../repository/index",
    "/v2/models/m/%2e%2e/%2e%2e/repository/index",
    "/v2/models/m/versions/1/../../../../repository/index",
    "/%76%32/repository/index",
    "/v2/repository/index?x=1",
    "/servers/triton/../v2/repository/index",
    "/v2/models/m/versions/1/unload",
    f"/v2/models/m/{'infer' * 1000}",
]


@pytest.mark.parametrize("path", [*TRICKS, *CONTROL])
def test_no_trick_and_no_control_is_understood(path: str) -> None:
    assert parse_path(path.encode("latin-1")) is None


@given(st.binary(max_size=80) | st.text("/v2modelsrepositryindx%.;012\\\r\n\0abcABC", max_size=60).map(str.encode))
@example(b"")
@example(b"/v2/models/m/infer\r\nX: y")
def test_every_accepted_path_is_forwarded_as_plain_names(url: bytes) -> None:
    target = parse_path(url)
    if target is not None:
        sent = kinds.KINDS["triton"].path(target, target.version)
        assert NAME.fullmatch(target.model)
        assert re.fullmatch(rb"/v2/models/[A-Za-z0-9_.-]+(/versions/[0-9]+)?(/[a-z_]+)?", sent)
        assert b".." not in sent.split(b"/")
