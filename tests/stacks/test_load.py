from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from stacks import load as loading
from stacks.load import load, parse
from stacks.problems import DefinitionError, Position, Problem
from stacks.reading.tree import loader_of
from tests.counts import examples

PYTHON = loader_of(yaml.SafeLoader)


@pytest.fixture(params=["C parser", "Python parser"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers: wheels have libyaml, a build from source may not."""
    if request.param == "Python parser":
        monkeypatch.setattr(loading, "_LOADER", PYTHON)


def problems_of(text: str) -> list[Problem]:
    with pytest.raises(DefinitionError) as caught:
        parse(text, "f.yaml")
    return caught.value.problems


def only_problem_of(text: str) -> Problem:
    (problem,) = problems_of(text)
    return problem


def place(problem: Problem) -> tuple[int, int]:
    assert isinstance(problem.where, Position)
    return problem.where.line, problem.where.column


def paths(tree: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    for key, below in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from paths(below, (*path, key))


# ---- values and places ----


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("3", 3),
        ("-3", -3),
        ("+1", 1),
        ("007", 7),
        ("0x1F", 31),
        ("0o17", 15),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-.inf", float("-inf")),
        ("26.08", 26.08),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("1.2.3", "1.2.3"),
        ("'3'", "3"),
        ('"true"', "true"),
        ("!!str 3", "3"),
        ("!!int 3", 3),
        ("!!bool true", True),
        ("!!null ''", None),
        ("|\n  a\n  b", "a\nb\n"),
        ("[]", []),
        ("!!map {}", {}),
        ("=", "="),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(written: str, value: object) -> None:
    got = parse(f"a: {written}\n", "f.yaml").tree["a"]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.usefixtures("parser")
def test_every_part_knows_its_place() -> None:
    document = parse("servers:\n  - name: a\n    pools: [x, {gpu: 1}]\n  -\n    name: b\n", "f.yaml")
    where = {
        ("servers",): (1, 1),
        ("servers", 0): (2, 5),
        ("servers", 0, "name"): (2, 5),
        ("servers", 0, "pools"): (3, 5),
        ("servers", 0, "pools", 0): (3, 13),
        ("servers", 0, "pools", 1, "gpu"): (3, 17),
        ("servers", 1): (5, 5),
        (): (1, 1),
    }
    for path, (line, column) in where.items():
        assert document.position(path) == Position("f.yaml", line, column), path
    assert document.value_position(("servers",)) == Position("f.yaml", 2, 3)
    assert document.value_position(("servers", 0, "pools", 1, "gpu")) == Position("f.yaml", 3, 22)


def test_an_absent_path_has_the_place_of_its_nearest_ancestor() -> None:
    document = parse("a:\n  b: 1\n", "f.yaml")
    assert document.position(("a", "c", "d")) == document.position((7,)) == Position("f.yaml", 1, 1)
    assert document.position(("a", "b", 0)) == Position("f.yaml", 2, 3)
    assert (document.get(("a", "c")), document.get(("a", "b"))) == (None, 1)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("on: 1\nno: 2\ny: 3\n", {"on": 1, "no": 2, "y": 3}),
        ("'<<': 1\n", {"<<": 1}),
        ("---\na: 1\n...\n", {"a": 1}),
        ("\ufeffa: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
    ],
)
def test_a_text_is_read(text: str, tree: dict[str, Any]) -> None:
    document = parse(text, "f.yaml")
    assert document.tree == tree
    assert document.position((next(iter(tree)),)).column == 1


def test_the_file_is_named_as_the_user_named_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f.yaml").write_bytes(b"\xef\xbb\xbfa: \xc3\xa4\r\n")
    monkeypatch.chdir(tmp_path)
    assert (load("./f.yaml").file, load("./f.yaml").tree) == ("./f.yaml", {"a": "ä"})


# ---- anchors ----


@pytest.mark.usefixtures("parser")
def test_anchors_aliases_and_merge_keys_work() -> None:
    text = "x: &x {a: 1, b: {c: 2}}\ny: &y {a: 5, d: 6}\none:\n  <<: *x\n  a: 3\ntwo: {<<: [*x, *y]}\nthree: *x\n"
    document = parse(text, "f.yaml")
    assert document.tree["one"] == {"a": 3, "b": {"c": 2}}
    assert document.tree["two"] == {"a": 1, "b": {"c": 2}, "d": 6}
    assert document.tree["three"] == document.tree["x"]
    assert document.position(("two", "d")).line == 2
    assert document.position(("one", "a")).line == 5
    assert document.value_position(("three",)) == Position("f.yaml", 7, 8)
    document.tree["three"]["b"]["c"] = 7  # Each alias is a separate copy.
    assert document.tree["x"]["b"] == document.tree["one"]["b"] == {"c": 2}


@pytest.mark.usefixtures("parser")
def test_aliases_have_the_line_of_their_use() -> None:
    text = "x: &a {b: &c 1}\nz:\n  - *a\n  - *a\nk: {l: *c, m: [*c, *a]}\n"
    document = parse(text, "f.yaml")
    where: dict[tuple[str | int, ...], tuple[int, int]] = {
        ("z", 0): (3, 5),
        ("z", 1): (4, 5),
        ("k", "l"): (5, 8),
        ("k", "m", 0): (5, 16),
        ("k", "m", 1): (5, 20),
    }
    found = {path: document.value_position(path) for path in where}
    assert {path: (at.line, at.column) for path, at in found.items()} == where


@pytest.mark.usefixtures("parser")
def test_a_bomb_of_anchors_is_refused_before_it_unfolds() -> None:
    text = "a: &a [x,x,x,x,x,x,x,x,x]\n"
    for one, next_one in zip("abcdefghijk", "bcdefghijkl", strict=True):
        text += f"{next_one}: &{next_one} [{','.join([f'*{one}'] * 9)}]\n"
    problem = only_problem_of(text)  # Unfolded, it would have 31 billion values: that would neither end nor fit.
    assert "with aliases, the definition has more than the limit of 200,000 values" in problem.what


def test_more_values_than_any_definition_has_are_refused_merged_or_written_out() -> None:
    members = ", ".join(f"k{n}: 1" for n in range(1_000))
    text = f"a: &a {{{members}}}\n" + "".join(f"b{n}: {{<<: *a}}\n" for n in range(300))
    assert "200,000" in only_problem_of(text).what
    assert (
        "the definition has more than the limit of 200,000 values" in only_problem_of(f"a: [{'1,' * 200_001}]\n").what
    )


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    "text", ["a: " + "[" * 100_000, "a: " + "{a: " * 5_000, "- " * 5_000, "? " * 5_000, "{" * 5_000]
)
def test_deep_nesting_is_refused_without_recursion(text: str) -> None:
    assert "deeper than the limit of 100 levels" in problems_of(text)[-1].what


def test_deep_nesting_through_aliases_is_refused() -> None:
    assert parse("a: " + "[" * 99 + "]" * 99, "f.yaml").tree
    text = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 200))
    assert "deeper than the limit of 100 levels" in only_problem_of(text).what
    merged = "a0: &a0 {m: 1}\n" + "".join(f"a{n}: &a{n} {{m: {{<<: *a{n - 1}}}}}\n" for n in range(1, 200))
    assert "deeper than the limit of 100 levels" in only_problem_of(merged).what


# ---- what a file must not have ----


def test_all_such_problems_are_reported_at_once_with_their_paths() -> None:
    text = """\
servers:
  - name: one
    gpu: 1
    gpu: 2
    image: !secret x
  - 5: five
    {a: b}: c
    true: x
servers: []
? [x]
: y
when: !!timestamp 2020-01-01
"""
    problems = problems_of(text)
    assert [(place(problem), problem.path) for problem in problems] == [
        ((4, 5), "servers[one]"),
        ((5, 12), "servers[one].image"),
        ((6, 5), "servers[1]"),
        ((7, 5), "servers[1]"),
        ((8, 5), "servers[1]"),
        ((9, 1), ""),
        ((10, 3), ""),
        ((12, 7), "when"),
    ]
    assert 'this mapping has the key "gpu" twice' in problems[0].what
    assert "f.yaml:3:5" in problems[0].why
    assert "!secret" in problems[1].what
    assert "key 5 is a number" in problems[2].what
    assert '"5"' in problems[2].do


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: &a [*a]", 1, "an alias is inside its own anchor"),
        ("a: &a {b: [{c: *a}]}", 1, "an alias is inside its own anchor"),
        ("a: &a {<<: *a}", 1, "an alias is inside its own anchor"),
        ("models: [*-small]\n", 1, "Quote texts that begin with *,"),
        ("a: &x 1\nb: &x 2\n", 2, "duplicate anchor"),
        ("a: {{ .Values.x }}\n", 1, "If this is a placeholder of a template"),
        ("a: !!int x\n", 1, '"x" is not a valid int'),
        ("a: !!bool yes\n", 1, '"yes" is not a valid bool'),
        ("a: !!int 1_000\n", 1, '"1_000" is not a valid int'),
        (f"a: !!float {'9' * 400}\n", 1, "is not a valid float"),
        ("a:\n  <<: {b: 1}\n  <<: {c: 1}\n", 3, 'this mapping has the key "<<" twice'),
        ("a: !!binary aGk=\n", 1, "unknown tag !!binary"),
        ('a: "b\\0c"\n', 1, "a: a text cannot contain the character U+0000"),
        ('a: {"\\e[31m": 1}\n', 1, "a text cannot contain the character U+001B"),
        (f"a: {'9' * 5_000}\n", 1, "is not a valid int"),
        ("<<: 3\na: {<<: 1}\n", 1, '"<<" accepts only mappings'),
        ("---\na: 1\n---\nb: 2\n", 3, "a second YAML document begins here"),
        ("a:\n\tb: 1\n", 2, "no tabs"),
        ("a: 'x\nb: 1\n", 3, "quoted scalar that begins in line 1"),
        ("a: b: c\n", 1, "mapping values are not allowed"),
        ("a:\n  b: 1\n c: 2\n", 3, "expected"),
        ("%YAML 3.0\n---\na: 1\n", 1, "not valid YAML"),
    ],
)
def test_unreadable_text_is_a_problem_with_its_line(text: str, line: int, words: str) -> None:
    first = problems_of(text)[0]
    assert place(first)[0] == line
    assert words in str(first)
    assert first.do or first.why


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "~\n", "\ufeff"])
def test_an_empty_definition_is_reported_as_empty(text: str) -> None:
    assert only_problem_of(text).what == "the file is empty"


@pytest.mark.parametrize(("text", "kind"), [("- a", "a list"), ("just words", "text"), ("3", "a number")])
def test_the_top_level_must_be_a_mapping(text: str, kind: str) -> None:
    assert only_problem_of(text).what.endswith(kind)
    assert place(only_problem_of(text)) == (1, 1)


# ---- any text ----

PIECES = [*"ab:-?[]{}&*!|>'\"%@`#,~\n\t\\ \u2028\x85\r\ufeff", "\n  ", "\n- ", ": ", "<<: ", "&a ", "*a ", "!!set "]
PIECES += ["---\n", "...\n", "0x", "1", ".5", "1e9", "\\U0011ffff", "\\ud800"]
yaml_like = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@pytest.mark.parametrize("loader", [loading._LOADER, PYTHON])
@examples(600)
@given(text=st.one_of(st.text(max_size=100), yaml_like))
@example(text='a: "\\U0011ffff"')
@example(text="*a : b")
@example(text="&a a: *a\n*a : b")
@example(text="? &a {b: *a}\n: *a")
def test_no_text_raises_anything_but_a_definition_error(loader: Any, text: str) -> None:
    before, loading._LOADER = loading._LOADER, loader
    try:
        document = parse(text, "f.yaml")
        for path in paths(document.tree):
            assert document.get(path) is not None or document.text(path) is not None
    except DefinitionError as error:
        assert str(error)  # noqa: PT017 – a file may as well be good
    finally:
        loading._LOADER = before
