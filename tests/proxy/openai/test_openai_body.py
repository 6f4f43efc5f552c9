"""Which model a body names is read as every server reads it, or not at all; the name alone is written anew."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_proxy.openai.body import MOST_NAMED, read
from tidegate_proxy.openai.kind import OpenAIKind
from tidegate_proxy.problems import Problem, ProblemType

KIND = OpenAIKind()
CHAT = KIND.understand("/v1/chat/completions")
KEYS = st.sampled_from(["model", "Model", "!~?", 'a"model":"b', "messages", "stream", "\\"]) | st.text(max_size=5)
TEXTS = st.sampled_from(["m", '"model":"m"', '\\"model":"m"', "\\", "é\u2028"]) | st.text(max_size=20)
LEAVES = st.none() | st.booleans() | st.integers(-9, 10**6) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
STYLES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, 0, 3, "\t"]),
        "separators": st.sampled_from([None, (",", ":"), (" , ", " \n: ")]),
        "ensure_ascii": st.booleans(),
    }
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, str]:
    """A body that names its model once, at any place; below it, whatever is called `model` as well."""
    name, others = draw(NAMES), draw(st.dictionaries(KEYS.filter(lambda key: key != "model"), VALUES, max_size=5))
    members = list(others.items())
    members.insert(draw(st.integers(0, len(members))), ("model", name))
    return json.dumps(dict(members), **draw(STYLES)).encode("utf-8", "surrogatepass"), name


def pairs(body: bytes) -> Any:
    return json.loads(body, object_pairs_hook=lambda found: found)


def asked(body: bytes, version: str | None) -> tuple[str, bytes]:
    assert CHAT is not None
    target, of_version = KIND.open_body(CHAT, body)
    return target.model, b"".join(of_version(target.model, version))


@given(bodies(), st.integers(1, 10**15))
def test_the_name_of_a_version_takes_the_place_of_the_models_and_nothing_else_changes(
    made: tuple[bytes, str], version: int
) -> None:
    body, name = made
    assert asked(body, None) == (name, body)
    model, sent = asked(body, str(version))
    assert model == name
    assert len(sent) == len(body) + len(f"-v{version}")
    assert json.loads(sent) == json.loads(body) | {"model": f"{name}-v{version}"}
    assert list(json.loads(sent)) == list(json.loads(body))


@given(bodies())
def test_a_body_is_as_it_was_when_it_has_been_read(made: tuple[bytes, str]) -> None:
    body = bytearray(made[0])
    read(body)
    assert body == made[0]


@given(bodies(), st.data())
def test_whatever_is_read_of_a_garbled_body_is_what_any_other_parser_reads(
    made: tuple[bytes, str], data: st.DataObject
) -> None:
    body = bytearray(made[0])
    pieces = st.sampled_from([b'"model":"x",', b'"model":1,', b'"mod\\u0065l":"x",', b'"!~?00":"x",', b"{", b"}", b'"'])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(pieces | st.binary(max_size=2))
    before = bytes(body)
    with suppress(Problem, ValueError):  # what is refused here, or by every server
        call, at = read(body)
        members = pairs(before)
        assert [value for key, value in members if key == "model"] == [call.model]
        renamed = before[:at] + b"other" + before[at + len(call.model.encode()) :]
        assert [(key, "other" if key == "model" else value) for key, value in members] == pairs(renamed)
    assert body == before


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"a","model":"b"}',
        b'{"model":"a","mod\\u0065l":"b"}',
        b'{"mod\\u0065l":"a","model":"b"}',
        b'{"mod\\u0065l":"a"}',
        b'{"model":"\\u0061"}',
        b'{"mod\\u0065l":"a","x":{"model":"b"}}',
        b'{"!~?00":"a","x":{"model":"b"}}',
        b'{"!~?00":"a","x":{"model":"b"},"model":"c"}',
        b'{"model":null}',
        b'{"model":["a"]}',
        b'{"messages":[]}',
        b'["model"]',
        b"",
        b"model=a",
        '{"model":"a"}'.encode("utf-16"),
        b'\xef\xbb\xbf{"model":"a"}',
        b"[" * 10_000,
        b'{"x":' + b'{"model":"a","y":' * (MOST_NAMED + 1) + b"0" + b"}" * (MOST_NAMED + 1) + b',"model":"a"}',
    ],
)
def test_a_body_that_servers_might_read_otherwise_is_refused(body: bytes) -> None:
    with pytest.raises(Problem) as refused:
        asked(body, "1")
    assert refused.value.type is ProblemType.MALFORMED


def test_a_name_that_no_model_has_is_unknown() -> None:
    with pytest.raises(Problem) as refused:
        asked(b'{"model":"meta/llama"}', None)
    assert refused.value.type is ProblemType.UNKNOWN


@pytest.mark.parametrize(
    ("stream", "streams"), [("true", True), ("false", False), ("null", False), ('"true"', True), ("1", True)]
)
def test_what_may_be_taken_for_a_wish_for_a_stream_is_one(stream: str, streams: bool) -> None:
    assert CHAT is not None
    assert KIND.open_body(CHAT, f'{{"model":"m","stream": {stream}}}'.encode())[0].streams is streams
    assert KIND.open_body(CHAT, b'{"model":"m"}')[0].streams is False


def test_paths_are_those_of_the_api_alone() -> None:
    found = {path: KIND.understand(path) for path in ("/v1/completions", "/servers/llm/v1/responses", "/v1/embeddings")}
    assert {path: (each.server, each.verb) for path, each in found.items() if each is not None} == {
        "/v1/completions": (None, "completions"),
        "/servers/llm/v1/responses": ("llm", "responses"),
        "/v1/embeddings": (None, "embeddings"),
    }
    for path in (
        "/v1/models",
        "/v1/chat",
        "/v1/completions/",
        "/v1/loras",
        "/busy_threshold",
        "/v1/chat/completions/x",
    ):
        assert KIND.understand(path) is None


@pytest.mark.parametrize(
    ("body", "told", "logged"),
    [
        (b'{"message":"Model not found","type":"Not Found","code":404}', None, "Not Found"),
        (b'{"error": {"message": "no", "code": 400}}', None, "400"),
        (b'{"detail":[{"loc":["body"],"msg":"bad"}]}', None, ""),
        (b"Service Unavailable", None, ""),
        (b"[1,2]", None, ""),
        (
            b'{"error":{"message":"cannot read /opt/models/secret/x.py","code":500}}',
            b'{"error":{"message":"cannot read x.py","code":500}}',
            "500",
        ),
        (b"File /opt/engine/main.py failed", b"File main.py failed", ""),
    ],
)
def test_an_engines_error_is_told_as_it_is_but_for_paths_and_logged_without_words_of_a_prompt(
    body: bytes, told: bytes | None, logged: str
) -> None:
    assert KIND.plain_error(body) == (told or body, logged)
