import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts.openai import LONGEST_SERVED_NAME, SERVED_NAME_PATTERN, is_served_name
from tidegate_proxy.openai.body import MOST_KEYS, MOST_VALUES, read
from tidegate_proxy.openai.kind import OpenAIKind
from tidegate_proxy.problems import Problem, ProblemType

KIND = OpenAIKind()
CHAT = KIND.parse_path("/v1/chat/completions")
KEYS = st.sampled_from(["model", "Model", "!~?", 'a"model":"b', "messages", "stream", "\\"]) | st.text(max_size=5)
TEXTS = st.sampled_from(["m", '"model":"m"', '\\"model":"m"', "\\", "é\u2028"]) | st.text(max_size=20)
LEAVES = st.none() | st.booleans() | st.integers(-9, 10**6) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
NAMES = st.from_regex(SERVED_NAME_PATTERN, fullmatch=True).filter(is_served_name)
STYLES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, 0, 3, "\t"]),
        "separators": st.sampled_from([None, (",", ":"), (" , ", " \n: ")]),
        "ensure_ascii": st.booleans(),
    }
)


DECIDE = {"model", "stream", "stream_options"}


def written(key: str) -> st.SearchStrategy[str]:
    """A key as JSON can have it: each letter in either case, or as its number."""
    letters = [st.sampled_from([a, a.upper(), *("ſ" if a == "s" else "")]) for a in key]
    forms = [each.flatmap(lambda a: st.sampled_from([a, f"\\u{ord(a):04x}", f"\\u{ord(a):04X}"])) for each in letters]
    return st.tuples(*forms).map("".join)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, str]:
    """A body that names its model once, at any place. Below the outermost object, other keys are called `model` too."""
    plain = KEYS.filter(lambda key: key != "model" and (key in DECIDE or key.casefold() not in DECIDE))
    name, others = draw(NAMES), draw(st.dictionaries(plain, VALUES, max_size=5))
    members = list(others.items())
    members.insert(draw(st.integers(0, len(members))), ("model", name))
    text = json.dumps(dict(members), **draw(STYLES))
    return (text.replace("/", "\\/") if draw(st.booleans()) else text).encode("utf-8", "surrogatepass"), name


@given(bodies(), st.sampled_from(sorted(DECIDE)).flatmap(written), VALUES, st.booleans())
def test_a_key_that_differs_in_case_alone_from_one_that_decides_is_refused(
    made: tuple[bytes, str], key: str, value: Any, first: bool
) -> None:
    """Some servers ignore case. Below the outermost object, such keys mean something else."""
    body, name = made
    inner, text = body.strip()[1:-1].decode("utf-8", "surrogatepass"), f'"{key}": {json.dumps(value)}'
    parts = (text, inner) if first else (inner, text)
    alike = json.loads(f'"{key}"') not in DECIDE
    if alike:
        with pytest.raises(Problem) as caught:
            read(f"{{{','.join(parts)}}}".encode("utf-8", "surrogatepass"))
        assert caught.value.type is ProblemType.MALFORMED
    nested = f'{{{inner}, "z": {{{text}}}}}'.encode("utf-8", "surrogatepass")
    assert read(nested).model == name


def forwarded(body: bytes, version: str | None, asks: bool = False) -> tuple[str, bytes]:
    assert CHAT is not None
    target, of_version = KIND.open_body(CHAT, body)
    return target.model, b"".join(of_version(target.model, version, asks))


@given(bodies(), st.integers(1, 10**15))
def test_the_name_of_a_version_replaces_the_models_and_nothing_else(made: tuple[bytes, str], version: int) -> None:
    body, name = made
    for chosen, called in ((None, name), (str(version), f"{name}-v{version}")):
        model, sent = forwarded(body, chosen)
        assert model == name
        assert json.loads(sent) == json.loads(body) | {"model": called}
    assert list(json.loads(sent)) == list(json.loads(body))


@given(bodies(), st.data())
def test_values_read_from_a_garbled_body_are_those_of_another_parser(
    made: tuple[bytes, str], data: st.DataObject
) -> None:
    body = bytearray(made[0])
    pieces = st.sampled_from([b'"model":"x",', b'"model":1,', b'"mod\\u0065l":"x",', b"{", b"}", b'"'])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(pieces | st.binary(max_size=2))
    with suppress(Problem, ValueError):  # invalid here, or for every server
        call, known = read(body), json.loads(body)
        sent = b"".join(call.parts("other", False))
        assert known["model"] == call.model
        assert json.loads(sent) == known | {"model": "other"}
        assert [key for key, _ in json.loads(sent, object_pairs_hook=list)] == list(known)


REFUSED = [
    *((body, "", ProblemType.MALFORMED) for body in (
        b'{"model":null}', b'{"model":["a"]}', b'{"messages":[]}', b'["model"]', b"", b"model=a",
        '{"model":"a"}'.encode("utf-16"), b'\xef\xbb\xbf{"model":"a"}', b"[" * 10_000,
    )),
    (b'{"model":""}', "is empty", ProblemType.MALFORMED),
    *((b'{"model":"%b"}' % name, "is too long", ProblemType.MALFORMED) for name in (
        b"a" * (LONGEST_SERVED_NAME + 1), ("語" * 86).encode(),
    )),
    *((f'{{"model":"{name}"}}'.encode(), "", ProblemType.UNKNOWN) for name in (
        "meta//llama", "meta/", "a/../b", "-m", ".m", "a b", "a@b", "a%2Fb", "é",
    )),
    (b'{"model":"a",%b}' % b",".join(b'"%d":0' % number for number in range(MOST_KEYS)), "outermost keys",
     ProblemType.TOO_LONG),
    *((b'{"model":"m","x":[%b0]}' % (unit * (2**21 // len(unit))), "values", ProblemType.TOO_LONG) for unit in (
        b"0,", b"[],", b'{"a":1},', b"[" * 100 + b"]" * 100 + b",",
    )),
]  # fmt: skip


@pytest.mark.parametrize(("body", "why", "kind"), REFUSED, ids=range(len(REFUSED)))
def test_a_body_without_a_known_model_or_too_slow_to_read_is_refused(body: bytes, why: str, kind: ProblemType) -> None:
    with pytest.raises(Problem, match=why or None) as refused:
        forwarded(body, "1")
    assert refused.value.type is kind


def test_a_body_may_be_as_large_as_is_documented() -> None:
    assert read(b'{"model":"m","x":"%b"}' % (b"," * (MOST_VALUES // 2) + b"y" * 2**20)).model == "m"
    for name in ("a" * LONGEST_SERVED_NAME, "a/" * 127 + "a"):
        for written in (name, name.replace("/", "\\/")):
            assert forwarded(b'{"model":"%b"}' % written.encode(), None)[0] == name


@given(bodies(), st.none() | st.dictionaries(st.sampled_from(["include_usage", "other"]), LEAVES), st.booleans())
def test_a_stream_gets_a_request_for_its_usage_and_nothing_else_changes(
    made: tuple[bytes, str], options: Any, has_options: bool
) -> None:
    whole = {key: value for key, value in json.loads(made[0]).items() if key not in ("stream", "stream_options")}
    before = {"stream_options": options} if has_options else {}
    body = json.dumps(before | whole | {"stream": True}).encode()
    wanted = (options or {}) | {"include_usage": True} if has_options and isinstance(options or {}, dict) else None
    assert CHAT is not None
    target, _ = KIND.open_body(CHAT, body)
    requests_usage = has_options and isinstance(options, dict) and options.get("include_usage") is True
    if requests_usage or (has_options and options and not isinstance(options, dict)):
        assert not target.requests_usage
        return
    sent = json.loads(forwarded(body, "2", True)[1])
    assert sent.pop("stream_options") == (wanted if has_options else {"include_usage": True})
    assert sent == whole | {"stream": True, "model": f"{made[1]}-v2"}
    assert forwarded(body, "2")[1] == forwarded(body, "2", False)[1]


@pytest.mark.parametrize(
    ("stream", "streams"), [("true", True), ("false", False), ("null", False), ('"true"', True), ("1", True)]
)
def test_any_sign_of_a_stream_counts_as_a_stream(stream: str, streams: bool) -> None:
    assert CHAT is not None
    assert KIND.open_body(CHAT, f'{{"model":"m","stream": {stream}}}'.encode())[0].streams is streams
    assert KIND.open_body(CHAT, b'{"model":"m"}')[0].streams is False


@pytest.mark.parametrize(
    ("body", "logged"),
    [
        (b'{"message":"Model not found","type":"Not Found","code":404}', "Not Found"),
        (b'{"error": {"message": "no", "code": 400}}', "400"),
        (b'{"detail":[{"loc":["body"],"msg":"bad"}]}', ""),
        (b"Service Unavailable", ""),
        (b"[1,2]", ""),
    ],
)
def test_an_engines_error_is_logged_without_words_of_a_prompt(body: bytes, logged: str) -> None:
    assert KIND.error_text(body) == logged


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m"}', b'{"model":"m","stream":false}', b'{"model":"m","stream":1}',
        b'{"model":"m","stream":true,"stream_options":{"include_usage":true}}',
        b'{"model":"m","stream":true,"stream_options":[1]}',
        b'{"model":"m","stream":true,"stream_options":{"x":"' + b"y" * 2000 + b'"}}',
    ],
)  # fmt: skip
def test_usage_is_not_requested_if_it_is_reported_anyway_or_the_options_are_unclear(body: bytes) -> None:
    assert CHAT is not None
    assert not KIND.open_body(CHAT, body)[0].requests_usage
    model, sent = forwarded(body, None, True)
    assert (model, json.loads(sent)) == ("m", json.loads(body))
